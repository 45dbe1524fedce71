/* Makes calls that change files fail with a chosen errno; loaded with LD_PRELOAD.
 *
 * The file that $FAILING_WRITES names says which, and may change while programs run. It is a
 * `struct control`, which Python packs in injector.py. Child processes inherit all of it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, CREATE = 2, MAKE = 4, WRITE = 8, SYNC = 16, RENAME = 32, REMOVE = 64 };

struct control {
    int number;        /* the errno; 0: nothing fails */
    int calls;         /* which kinds of calls fail */
    int failed;        /* how many have failed */
    int spared;        /* how many calls still work before that */
    char where[1024];  /* a pattern of paths, whose * takes / too */
    char since[1024];  /* a file that must be there first; empty: from the start */
    char until[1024];  /* a file that ends it; empty: for ever */
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAILING_WRITES");
    int file = name ? syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0) return;
    void *place = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) control = place;
    syscall(SYS_close, file);
}

static int is_there(const char *path) {
    int before = errno, found = !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
    errno = before;
    return found;
}

/* Whether a call of a kind on a path fails; only then errno is set. */
static int fails(int kind, const char *path) {
    if (!control || !control->number || !(control->calls & kind)) return 0;
    if (fnmatch(control->where, path, 0)) return 0;
    if (control->since[0] && !is_there(control->since)) return 0;
    if (control->until[0] && is_there(control->until)) return 0;
    if (control->spared > 0 && __atomic_sub_fetch(&control->spared, 1, __ATOMIC_RELAXED) >= 0)
        return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_RELAXED);
    errno = control->number;
    return 1;
}

static int fails_at(int kind, int folder, const char *name) {
    char path[4096] = "", link[64];
    if (!control || !control->number || !(control->calls & kind)) return 0;
    if (name[0] != '/') {
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t size = readlink(link, path, 2000);
        if (size < 0) return 0;
        path[size++] = '/';
        path[size] = 0;
    }
    strncat(path, name, 2000);
    return fails(kind, path);
}

static int fails_for(int kind, int file) {
    char path[4096], link[64];
    if (!control || !control->number || !(control->calls & kind)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return fails(kind, path);
}

static int opening_fails(int folder, const char *name, int flags) {
    if (fails_at(OPEN, folder, name)) return 1;
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT ? fails_at(CREATE, folder, name) : 0;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

#define OPENS(function) \
    int function(const char *name, int flags, ...) { \
        MODE(flags) \
        if (opening_fails(AT_FDCWD, name, flags)) return -1; \
        REAL(int, #function, const char *, int, ...); \
        return real(name, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(function) \
    int function(int folder, const char *name, int flags, ...) { \
        MODE(flags) \
        if (opening_fails(folder, name, flags)) return -1; \
        REAL(int, #function, int, const char *, int, ...); \
        return real(folder, name, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

#define CREATES(function) \
    int function(const char *name, mode_t mode) { \
        if (opening_fails(AT_FDCWD, name, O_WRONLY | O_CREAT)) return -1; \
        REAL(int, #function, const char *, mode_t); \
        return real(name, mode); \
    }
CREATES(creat)
CREATES(creat64)

#define STREAMS(function) \
    FILE *function(const char *name, const char *how) { \
        int flags = strpbrk(how, "wa+") ? O_WRONLY | O_CREAT : O_RDONLY; \
        if (opening_fails(AT_FDCWD, name, flags)) return 0; \
        REAL(FILE *, #function, const char *, const char *); \
        return real(name, how); \
    }
STREAMS(fopen)
STREAMS(fopen64)

int mkdir(const char *name, mode_t mode) {
    if (fails_at(MAKE, AT_FDCWD, name)) return -1;
    REAL(int, "mkdir", const char *, mode_t);
    return real(name, mode);
}

int mkdirat(int folder, const char *name, mode_t mode) {
    if (fails_at(MAKE, folder, name)) return -1;
    REAL(int, "mkdirat", int, const char *, mode_t);
    return real(folder, name, mode);
}

/* A call on a descriptor that changes the bytes of its file. */
#define CHANGES(type, function, kind, parameters, arguments) \
    type function parameters { \
        if (fails_for(kind, file)) return -1; \
        static type (*real) parameters; \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #function); \
        return real arguments; \
    }
/* A disk that becomes full takes the begin of what is written, and fails at the next call. */
ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (!fails_for(WRITE, file)) return real(file, data, size);
    int torn = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return torn && size > 1 ? real(file, data, size / 2) : -1;
}

CHANGES(ssize_t, pwrite, WRITE, (int file, const void *data, size_t size, off_t place),
        (file, data, size, place))
CHANGES(ssize_t, pwrite64, WRITE, (int file, const void *data, size_t size, off64_t place),
        (file, data, size, place))
CHANGES(ssize_t, writev, WRITE, (int file, const struct iovec *parts, int count),
        (file, parts, count))
CHANGES(ssize_t, sendfile, WRITE, (int file, int from, off_t *place, size_t size),
        (file, from, place, size))
CHANGES(ssize_t, sendfile64, WRITE, (int file, int from, off64_t *place, size_t size),
        (file, from, place, size))
CHANGES(int, ftruncate, WRITE, (int file, off_t size), (file, size))
CHANGES(int, ftruncate64, WRITE, (int file, off64_t size), (file, size))
CHANGES(int, fallocate, WRITE, (int file, int how, off_t place, off_t size),
        (file, how, place, size))
CHANGES(int, fallocate64, WRITE, (int file, int how, off64_t place, off64_t size),
        (file, how, place, size))
CHANGES(int, fsync, SYNC, (int file), (file))
CHANGES(int, fdatasync, SYNC, (int file), (file))

/* This one returns its error. */
#define ALLOCATES(function, offset) \
    int function(int file, offset place, offset size) { \
        if (fails_for(WRITE, file)) return errno; \
        REAL(int, #function, int, offset, offset); \
        return real(file, place, size); \
    }
ALLOCATES(posix_fallocate, off_t)
ALLOCATES(posix_fallocate64, off64_t)

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    if (fails_for(WRITE, fileno(stream))) return 0;
    REAL(size_t, "fwrite", const void *, size_t, size_t, FILE *);
    return real(data, size, count, stream);
}

int rename(const char *from, const char *to) {
    if (fails_at(RENAME, AT_FDCWD, to)) return -1;
    REAL(int, "rename", const char *, const char *);
    return real(from, to);
}

int renameat(int there, const char *from, int folder, const char *to) {
    if (fails_at(RENAME, folder, to)) return -1;
    REAL(int, "renameat", int, const char *, int, const char *);
    return real(there, from, folder, to);
}

int renameat2(int there, const char *from, int folder, const char *to, unsigned flags) {
    if (fails_at(RENAME, folder, to)) return -1;
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    return real(there, from, folder, to, flags);
}

int link(const char *from, const char *to) {
    if (fails_at(MAKE, AT_FDCWD, to)) return -1;
    REAL(int, "link", const char *, const char *);
    return real(from, to);
}

int linkat(int there, const char *from, int folder, const char *to, int flags) {
    if (fails_at(MAKE, folder, to)) return -1;
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return real(there, from, folder, to, flags);
}

/* A missing file is missing on a read-only disk too. */
#define REMOVES(function) \
    int function(const char *name) { \
        if (is_there(name) && fails_at(REMOVE, AT_FDCWD, name)) return -1; \
        REAL(int, #function, const char *); \
        return real(name); \
    }
REMOVES(unlink)
REMOVES(rmdir)

int unlinkat(int folder, const char *name, int flags) {
    if (fails_at(REMOVE, folder, name)) return -1;
    REAL(int, "unlinkat", int, const char *, int);
    return real(folder, name, flags);
}
