/*
 * A slow flush for any program: preloaded before libc (LD_PRELOAD), it makes every call that
 * waits for stable storage take FLUSH_DELAY_US microseconds longer.
 *
 * 1. Delayed: fsync, fdatasync, syncfs, sync, sync_file_range that waits, msync(MS_SYNC), and writes that are durable by
 *    themselves: to a descriptor opened with O_SYNC or O_DSYNC, or by pwritev2 with RWF_DSYNC or RWF_SYNC.
 * 2. The delay comes after the call, in the calling thread: other threads continue, as they would beside a slow flush.
 * 3. At exit the number of delayed calls goes to standard error, so that a measurement can check that there were any.
 *    It cannot delay a program that enters the kernel without libc; the number is then 0.
 *
 *     cc -O2 -shared -fPIC -o flush_delay.so flush_delay.c -ldl -pthread
 *     FLUSH_DELAY_US=8000 LD_PRELOAD=./flush_delay.so program
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* For higher descriptors the flags are queried at every write. */
enum { FDS = 4096, UNKNOWN = 0, PLAIN = 1, DURABLE = 2 };

static _Atomic unsigned long long delayed;
static _Atomic signed char kinds[FDS];
static struct timespec delay;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    const char *text = getenv("FLUSH_DELAY_US");
    long us = text ? strtol(text, NULL, 10) : 0;
    if (us < 0)
        us = 0;
    delay.tv_sec = us / 1000000;
    delay.tv_nsec = us % 1000000 * 1000;
}

__attribute__((destructor)) static void report(void) {
    fprintf(stderr, "flush_delay: %llu calls delayed\n", (unsigned long long)atomic_load(&delayed));
}

static void wait_longer(void) {
    int saved = errno;
    pthread_once(&once, start);
    struct timespec left = delay;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    atomic_fetch_add(&delayed, 1);
    errno = saved;
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "flush_delay: libc has no %s: %s\n", name, dlerror());
        abort();
    }
    return found;
}

/* The next definition of a function, looked up once. */
#define FIND(name)                                                                                                     \
    static _Atomic(void *) found;                                                                                      \
    void *real = atomic_load(&found);                                                                                  \
    if (!real)                                                                                                         \
        atomic_store(&found, real = next(#name));                                                                      \
    __typeof__(&name) call = (__typeof__(&name))real

static int is_durable(int fd) {
    if (fd < 0)
        return 0;
    if (fd < FDS) {
        signed char kind = atomic_load(&kinds[fd]);
        if (kind != UNKNOWN)
            return kind == DURABLE;
    }
    int saved = errno, flags = fcntl(fd, F_GETFL);
    errno = saved;
    /* O_SYNC holds the bit of O_DSYNC. */
    int durable = flags >= 0 && (flags & O_DSYNC) != 0;
    if (fd < FDS && flags >= 0)
        atomic_store(&kinds[fd], durable ? DURABLE : PLAIN);
    return durable;
}

/* The number may be reused for another file. */
static void forget(int fd) {
    if (fd >= 0 && fd < FDS)
        atomic_store(&kinds[fd], UNKNOWN);
}

#define AFTER(condition, result)                                                                                       \
    do {                                                                                                               \
        if (condition)                                                                                                 \
            wait_longer();                                                                                             \
        return result;                                                                                                 \
    } while (0)

int close(int fd) {
    FIND(close);
    forget(fd);
    return call(fd);
}

int dup2(int from, int to) {
    FIND(dup2);
    forget(to);
    return call(from, to);
}

int dup3(int from, int to, int flags) {
    FIND(dup3);
    forget(to);
    return call(from, to, flags);
}

int fsync(int fd) {
    FIND(fsync);
    int result = call(fd);
    AFTER(1, result);
}

int fdatasync(int fd) {
    FIND(fdatasync);
    int result = call(fd);
    AFTER(1, result);
}

int syncfs(int fd) {
    FIND(syncfs);
    int result = call(fd);
    AFTER(1, result);
}

void sync(void) {
    FIND(sync);
    call();
    wait_longer();
}

int msync(void *start_at, size_t length, int flags) {
    FIND(msync);
    int result = call(start_at, length, flags);
    AFTER(flags & MS_SYNC, result);
}

int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
    FIND(sync_file_range);
    int result = call(fd, offset, bytes, flags);
    AFTER(flags & SYNC_FILE_RANGE_WAIT_AFTER, result);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    FIND(write);
    ssize_t result = call(fd, bytes, count);
    AFTER(is_durable(fd), result);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    FIND(writev);
    ssize_t result = call(fd, parts, count);
    AFTER(is_durable(fd), result);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    FIND(pwrite);
    ssize_t result = call(fd, bytes, count, offset);
    AFTER(is_durable(fd), result);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    FIND(pwrite64);
    ssize_t result = call(fd, bytes, count, offset);
    AFTER(is_durable(fd), result);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    FIND(pwritev);
    ssize_t result = call(fd, parts, count, offset);
    AFTER(is_durable(fd), result);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    FIND(pwritev64);
    ssize_t result = call(fd, parts, count, offset);
    AFTER(is_durable(fd), result);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    FIND(pwritev2);
    ssize_t result = call(fd, parts, count, offset, flags);
    AFTER((flags & (RWF_DSYNC | RWF_SYNC)) || is_durable(fd), result);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    FIND(pwritev64v2);
    ssize_t result = call(fd, parts, count, offset, flags);
    AFTER((flags & (RWF_DSYNC | RWF_SYNC)) || is_durable(fd), result);
}
