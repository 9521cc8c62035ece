//! What the lab says: Rust decides which outcome a verdict has, a TOML file beside it holds the words.
//!
//! ```toml
//! [says.append]                          # the verdict's id, unless `id` gives another
//! names = ["overwriting", "appending"]   # what is compared, for the case that it cannot be told
//! reason = "published on {fs}: 4.0x"     # the numbers behind it
//! more = ["warning", "appending costs {times} overwriting", "a reason of its own; {reason}"]
//! ```
//!
//! - Every other key is an outcome: its level, its sentence, and a reason in place of the common one.
//! - A comparison has the outcomes `more`, `less` and `same`; `{times}` is how many times faster, or slower, the
//!   first is. Its reason follows the two rates.

use super::{Answer, Level, Pair, Verdict};
use crate::cell::Experiment;
use crate::text::{Var, fill, vars};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The words of verdicts, by the verdict.
pub(crate) type Says = BTreeMap<String, Said>;

/// The words of one verdict.
#[derive(Debug, Deserialize)]
pub(crate) struct Said {
    id: Option<String>,
    #[serde(default)]
    names: [String; 2],
    #[serde(default)]
    reason: String,
    #[serde(flatten)]
    outcomes: BTreeMap<String, Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome(Level, String, #[serde(default)] Option<String>);

/// Reads a data file of this crate.
pub(crate) fn data<T: DeserializeOwned>(toml: &str) -> T {
    toml::from_str(toml).expect("the tests read every data file of this crate")
}

/// Collects verdicts of one experiment.
pub(crate) struct Writer<'a> {
    pub(crate) out: &'a mut Vec<Verdict>,
    pub(crate) experiment: Option<Experiment>,
    pub(crate) says: &'a Says,
}

impl Writer<'_> {
    /// Adds a verdict with this outcome.
    pub(crate) fn say(&mut self, key: &str, outcome: &str, vars: &[Var<'_>]) {
        let said = &self.says[key];
        let Outcome(level, sentence, reason) = &said.outcomes[outcome];
        let reason = reason.as_ref().map_or(said.reason.clone(), |own| own.replace("{reason}", &said.reason));
        self.add(key, *level, fill(sentence, vars), fill(&reason, vars), vars);
    }

    /// Adds the verdict on a pair, unless there is no pair.
    pub(crate) fn compare<'p>(&mut self, key: &str, pair: impl Into<Option<Pair<'p>>>, vars: &[Var<'_>]) {
        if let Some(pair) = pair.into() {
            self.compare_as(key, &pair, pair.answer.word(), None, vars);
        }
    }

    /// Adds the verdict on a pair with this outcome, or "cannot tell" if the rates do not decide; `hidden` gives
    /// another reason why they do not.
    pub(crate) fn compare_as(
        &mut self,
        key: &str,
        pair: &Pair<'_>,
        outcome: &str,
        hidden: Option<String>,
        vars: &[Var<'_>],
    ) {
        let said = &self.says[key];
        let unclear = if pair.answer == Answer::Unclear { Some(pair.why_unclear()) } else { hidden };
        let times = if pair.answer == Answer::Less { pair.times_slower() } else { pair.times() };
        let vars = &[vars, vars![times]].concat();
        let (level, sentence) = match said.outcomes.get(outcome).filter(|_| unclear.is_none()) {
            Some(Outcome(level, sentence, _)) => (*level, fill(sentence, vars)),
            None => {
                let [a, b] = said.names.each_ref().map(|name| fill(name, vars));
                (Level::CannotTell, format!("cannot tell {a} from {b}"))
            }
        };
        let same = (pair.answer == Answer::Same).then(|| "any difference is under 10%".to_owned());
        let because = Some(fill(&said.reason, vars)).filter(|because| !because.is_empty());
        let reason: Vec<String> = [unclear.or(same), Some(pair.reason()), because].into_iter().flatten().collect();
        self.add(key, level, sentence, reason.join("; "), vars);
    }

    fn add(&mut self, key: &str, level: Level, sentence: String, reason: String, vars: &[Var<'_>]) {
        let scope = self.experiment.map_or("run", Experiment::word);
        let subject = self.says[key].id.as_ref().map_or_else(|| key.to_owned(), |id| fill(id, vars));
        let id = format!("{scope}.{subject}");
        self.out.push(Verdict { id, experiment: self.experiment, level, sentence, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Words;

    /// The outcomes and panels in Rust and those in the data files are the same ones.
    #[test]
    fn every_outcome_is_said_by_the_file_beside_its_code() {
        #[derive(Deserialize)]
        struct File {
            says: Says,
            #[serde(default)]
            panels: Words,
        }
        let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = ["experiment", "verdict"].into_iter().flat_map(|dir| std::fs::read_dir(src.join(dir)).unwrap());
        let mut seen = 0;
        for path in files.map(|file| file.unwrap().path()).filter(|path| path.extension() == Some("toml".as_ref())) {
            let toml = std::fs::read_to_string(&path).unwrap();
            let code = std::fs::read_to_string(path.with_extension("rs")).unwrap();
            let File { says, panels } = match path.starts_with(src.join("verdict")) {
                true => File { says: data(&toml), panels: Words::new() },
                false => data(&toml),
            };
            for key in panels.keys() {
                assert!(code.contains(&format!("\"{key}\"")), "{path:?} has the panel {key}, which nothing shows");
            }
            for (key, said) in says {
                let compared = ["more", "less", "same"].iter().any(|word| said.outcomes.contains_key(*word));
                assert!(code.contains(&format!("\"{key}\"")), "{path:?} has {key}, which nothing says");
                assert!(
                    !compared || !said.names[0].is_empty() || said.outcomes.len() == 3,
                    "{path:?}: {key} has no names"
                );
                for outcome in said.outcomes.keys().filter(|word| !["more", "less", "same"].contains(&word.as_str())) {
                    assert!(
                        code.contains(&format!("\"{outcome}\"")),
                        "{path:?}: {key} never has the outcome {outcome}"
                    );
                }
                seen += 1;
            }
        }
        assert!(seen > 40, "{seen}");
    }
}
