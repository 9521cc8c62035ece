//! Enums with a word for each value, for ids, results and command lines.
//!
//! The word is written once, beside the value. `Display` and `FromStr` use it, and a parse error lists all words. Other
//! words for titles and sentences follow after a bar. JSON holds the variant's name in kebab-case, so a crate that uses
//! the macro needs serde.

/// Defines an enum with a word for each value. It is `Debug`, `Copy`, `Eq`, `Hash`, `Serialize` and `Deserialize`.
///
/// ```
/// seawall_lab::words! {
///     /// How rows are inserted.
///     pub enum Order {
///         /// In the order of their keys.
///         Ordered = "in-order",
///         /// In a random order.
///         Random = "random" | "in any order",
///     }
/// }
/// assert_eq!((Order::Ordered.to_string(), "RANDOM".parse()), ("in-order".into(), Ok(Order::Random)));
/// assert_eq!([Order::Ordered, Order::Random].map(Order::words), ["in-order", "in any order"]);
/// assert_eq!("odd".parse::<Order>(), Err("\"odd\": use one of in-order, random".to_owned()));
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $word:literal $(| $words:literal)?),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        $vis enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// All of them.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Its word.
            $vis fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// Its words in a title or a sentence: those after the bar, else its word.
            #[allow(dead_code)]
            $vis fn words(self) -> &'static str {
                match self { $(Self::$variant => [$($words,)? $word][0]),+ }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> ::std::result::Result<Self, String> {
                let found = Self::ALL.into_iter().find(|value| text.eq_ignore_ascii_case(value.word()));
                found.ok_or_else(|| format!("{text:?}: use one of {}", Self::ALL.map(Self::word).join(", ")))
            }
        }
    };
}
