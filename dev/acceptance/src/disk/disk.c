/*
 * A disk that fails when it is told to, and that remembers what a power cut would take back.
 *
 * Loaded before the C library, it stands in front of the calls by which a program changes files
 * and names below one directory; all other files and sockets pass. The environment says where
 * things are:
 *
 *   DISK_DIRECTORY  the directory, without links in its name
 *   DISK_UNDO       where to write down how every change is undone, until a sync has made it safe
 *   DISK_GRAVES     a directory on the same disk for files that were removed, by number
 *   DISK_FAULT      a file that, once it is there, says what fails: `<call> <error> <after>`, as in
 *                   `write ENOSPC 3` (the fourth write from now on, and all later ones),
 *                   `sync EIO 0` (the next sync, once: the system forgets such an error when it has
 *                   told of it; none of a `list.new`, without which a broker goes on) or
 *                   `write short 0` (every write of more than a sector takes half of it). Other
 *                   calls are `open` (of what is there), `make` (a file or a directory), `rename`,
 *                   `truncate` and `remove`; and `sector EIO 4096` is a journal (`*.jnl`) of which
 *                   the sector from that byte on cannot be read. When the first call has met it,
 *                   there is a file of the same name with `.met` behind it.
 *
 * Changes of what is in a file lie in the undo file in the order in which they are made, and before
 * they are made: one that was never made is undone by writing what is there. Changes of names lie
 * there in their order, behind them: one that was made in the last moment stays. A sync of a file
 * makes safe what is in it, and only a sync of a directory the names in it. `undo.rs` reads what
 * this writes.
 *
 * Deliberately absent: programs that ask the system past the C library, whose changes would be safe
 * at once. The broker does not: its engine renames through the crate `rustix`, which is told so in
 * the manifest of the store, and `power_cuts.rs` looks whether such a rename was seen. And names
 * that are given by links, which the broker gives only where it looks at a store.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* What is not longer is written whole or not at all. */
#define SECTOR 512

/* Of what is in files, then of names. */
enum kind {
    CHANGE = 1, SYNCED = 2, FAILED = 3,
    MADE = 4, REMOVED = 5, RENAMED = 6, NAMES_SYNCED = 7, NAMES_FAILED = 8
};

/*
 * In the undo file. Behind a change there are `bytes` bytes that were there before, and behind them
 * zeros; behind the others the name that was made, removed or given, or whose names were synced,
 * and for RENAMED a zero and the name before.
 */
struct record {
    uint32_t kind;
    uint32_t bytes;
    uint64_t file;    /* inode; of a name: the grave of the file that had it, or 0 */
    uint64_t offset;  /* of the change; of a sync: the place in the undo file where it began */
    uint64_t written; /* bytes that are written from there on */
    uint64_t length;  /* of the file before */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char directory[4096];
static const char *fault_file, *graves;
static uint64_t grave;
static int undo_file = -1;

static char fault_call[16], fault_error[16];
static long fault_after;
static int fault_is_known, fault_is_met;

static uint64_t undo_length(void)
{
    struct stat file;
    if (fstat(undo_file, &file) != 0)
        abort();
    return file.st_size;
}

__attribute__((constructor)) static void begin(void)
{
    const char *wanted = getenv("DISK_DIRECTORY"), *undo = getenv("DISK_UNDO");
    fault_file = getenv("DISK_FAULT");
    graves = getenv("DISK_GRAVES");
    if (wanted == NULL || undo == NULL || graves == NULL || fault_file == NULL)
        return;
    snprintf(directory, sizeof directory, "%s/", wanted);
    /* The end of a process makes nothing safe: the next one goes on behind it. */
    undo_file =
        syscall(SYS_openat, AT_FDCWD, undo, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (undo_file < 0)
        abort();
    grave = undo_length();
}

static int open_to_read(const char *path)
{
    return syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

/* Whether a path without links is below the directory. */
static int is_below(const char *path)
{
    return strncmp(path, directory, strlen(directory)) == 0;
}

/* Whether a path ends so. */
static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

/* What the system calls an open file. */
static int path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

/* Whether this is a regular file below the directory. */
static int is_ours(int fd, struct stat *found)
{
    char path[PATH_MAX];
    if (undo_file < 0 || fd == undo_file || fstat(fd, found) != 0 || !S_ISREG(found->st_mode))
        return 0;
    return path_of(fd, path) && is_below(path);
}

/* Whether a name is below the directory, and how it is called without links before it. */
static int is_our_name(int at, const char *path, char place[PATH_MAX])
{
    char whole[PATH_MAX], before[PATH_MAX] = "";
    if (undo_file < 0 || path == NULL)
        return 0;
    if (path[0] != '/' && (at == AT_FDCWD ? getcwd(before, sizeof before) == NULL
                                          : !path_of(at, before)))
        return 0;
    if (snprintf(whole, sizeof whole, "%s/%s", before, path) >= (int)sizeof whole)
        return 0;
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/')
        whole[--length] = 0;
    char *name = strrchr(whole, '/');
    *name++ = 0;
    char *parent = realpath(whole[0] ? whole : "/", NULL);
    if (parent == NULL)
        return 0;
    int fits = snprintf(place, PATH_MAX, "%s/%s", parent, name) < PATH_MAX;
    free(parent);
    return fits && is_below(place);
}

/* A harness whose own disk fails has nothing to say about anybody else's. */
static void put(const void *bytes, size_t length)
{
    const char *from = bytes;
    while (length > 0) {
        ssize_t put = syscall(SYS_write, undo_file, from, length);
        if (put <= 0)
            abort();
        from += put;
        length -= put;
    }
}

/* Remembers what is in a file where it is about to change. */
static void remember(int fd, const struct stat *file, uint64_t offset, uint64_t written, uint64_t end)
{
    uint64_t length = file->st_size;
    uint64_t until = end < length ? end : length;
    uint32_t bytes = until > offset ? until - offset : 0;
    struct record record = {CHANGE, bytes, file->st_ino, offset, written, length};
    char *before = malloc(bytes + 1);
    /* The descriptor may be for writing only. */
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = bytes > 0 ? open_to_read(link) : -1;
    if (before == NULL ||
        (bytes > 0 && syscall(SYS_pread64, reader, before, bytes, offset) != (ssize_t)bytes))
        abort();
    if (reader >= 0)
        close(reader);
    /* Zeros at the end are not kept: a journal is full of them. */
    while (record.bytes > 0 && before[record.bytes - 1] == 0)
        record.bytes--;
    put(&record, sizeof record);
    put(before, record.bytes);
    free(before);
}

static int knows_fault(void)
{
    if (!fault_is_known) {
        char text[64] = {0};
        int fd = open_to_read(fault_file);
        if (fd < 0)
            return 0;
        ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0 || sscanf(text, "%15s %15s %ld", fault_call, fault_error, &fault_after) != 3)
            abort();
        fault_is_known = 1;
    }
    return 1;
}

/* For who wants to know that a fault was more than told: a call has met it. */
static void tell_met(void)
{
    char path[PATH_MAX];
    if (fault_is_met)
        return;
    snprintf(path, sizeof path, "%s.met", fault_file);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        abort();
    close(fd);
    fault_is_met = 1;
}

/* The error that a call has to meet on so many bytes; 0 for none, -1 for taking half. */
static int fault_of(const char *call, size_t length)
{
    if (!knows_fault() || strcmp(fault_call, call) != 0)
        return 0;
    if (fault_after > 0) {
        fault_after--;
        return 0;
    }
    int is_short = strcmp(fault_error, "short") == 0;
    if (is_short && length <= SECTOR)
        return 0;
    tell_met();
    if (is_short)
        return -1;
    if (strcmp(call, "sync") == 0)
        fault_call[0] = 0;
    return strcmp(fault_error, "ENOSPC") == 0 ? ENOSPC : EIO;
}

static int fault(const char *call)
{
    return fault_of(call, 0);
}

/* How much of this can be read: what is before a bad sector, 0 from it on. */
static size_t readable(int fd, size_t length, uint64_t at)
{
    struct stat file;
    char path[PATH_MAX];
    if (length == 0 || !is_ours(fd, &file) || !path_of(fd, path))
        return length;
    pthread_mutex_lock(&turn);
    int known = knows_fault() && strcmp(fault_call, "sector") == 0;
    uint64_t bad = known ? fault_after : 0;
    int meets = known && ends_with(path, ".jnl") && at + length > bad && at < bad + SECTOR;
    if (meets)
        tell_met();
    pthread_mutex_unlock(&turn);
    if (!meets)
        return length;
    return at < bad ? bad - at : 0;
}

ssize_t read(int fd, void *bytes, size_t length)
{
    off64_t at = lseek64(fd, 0, SEEK_CUR);
    size_t found = at < 0 ? length : readable(fd, length, at);
    if (found == 0 && length > 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_read, fd, bytes, found);
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset)
{
    size_t found = readable(fd, length, offset);
    if (found == 0 && length > 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, bytes, found, offset);
}

/* Writes at an offset, or where the descriptor stands if that is -1. */
static ssize_t change(int fd, const void *bytes, size_t length, off64_t offset)
{
    struct stat file;
    if (length == 0 || !is_ours(fd, &file)) {
        if (offset >= 0)
            return syscall(SYS_pwrite64, fd, bytes, length, offset);
        return syscall(SYS_write, fd, bytes, length);
    }
    pthread_mutex_lock(&turn);
    fstat(fd, &file); /* it may have grown since */
    ssize_t done = -1;
    int error = fault_of("write", length);
    if (error > 0) {
        errno = error;
    } else {
        if (error < 0)
            length /= 2;
        uint64_t at = offset;
        if (offset < 0)
            at = fcntl(fd, F_GETFL) & O_APPEND ? file.st_size : lseek64(fd, 0, SEEK_CUR);
        remember(fd, &file, at, length, at + length);
        done = offset >= 0 ? syscall(SYS_pwrite64, fd, bytes, length, offset)
                           : syscall(SYS_write, fd, bytes, length);
    }
    int kept = errno;
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    return change(fd, bytes, length, -1);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    return change(fd, bytes, length, offset);
}

/* Of several pieces to one of our files only the first is taken, as the call may do. */
ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    struct stat file;
    if (!is_ours(fd, &file))
        return syscall(SYS_writev, fd, pieces, count);
    for (int each = 0; each < count; each++)
        if (pieces[each].iov_len > 0)
            return change(fd, pieces[each].iov_base, pieces[each].iov_len, -1);
    return 0;
}

int ftruncate64(int fd, off64_t length)
{
    struct stat file;
    if (!is_ours(fd, &file))
        return syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&turn);
    fstat(fd, &file);
    int error = fault("truncate"), done = -1;
    if (error == 0) {
        /* What is cut off comes back; nothing is written. */
        remember(fd, &file, length, 0, UINT64_MAX);
        done = syscall(SYS_ftruncate, fd, length);
    }
    int kept = error ? error : errno;
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

/* Changes that are made while the sync runs are not safe with it. */
static int make_safe(int fd, long call)
{
    struct stat file;
    char path[PATH_MAX] = "";
    int names = undo_file >= 0 && fstat(fd, &file) == 0 && S_ISDIR(file.st_mode) &&
                path_of(fd, path) && is_below(strcat(path, "/"));
    if (!names && !is_ours(fd, &file))
        return syscall(call, fd);
    int spared = !names && path_of(fd, path) && ends_with(path, "/list.new");
    pthread_mutex_lock(&turn);
    int error = spared ? 0 : fault("sync");
    struct record record = {0, 0, file.st_ino, undo_length(), 0, 0};
    pthread_mutex_unlock(&turn);
    int done = error ? -1 : syscall(call, fd);
    int kept = error ? error : errno;
    if (names) {
        record.kind = done == 0 ? NAMES_SYNCED : NAMES_FAILED;
        record.bytes = strlen(path) - 1;
    } else {
        record.kind = done == 0 ? SYNCED : FAILED;
    }
    pthread_mutex_lock(&turn);
    put(&record, sizeof record);
    put(path, record.bytes);
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

int fsync(int fd)
{
    return make_safe(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return make_safe(fd, SYS_fdatasync);
}

/* Remembers that a name is new, was removed, or is given instead of another. */
static void remember_name(uint32_t kind, const char *place, const char *before, uint64_t buried)
{
    char names[2 * PATH_MAX];
    uint32_t bytes = snprintf(names, sizeof names, "%s", place);
    if (before != NULL)
        bytes += 1 + snprintf(names + bytes + 1, sizeof names - bytes - 1, "%s", before);
    struct record record = {kind, bytes, buried, 0, 0, 0};
    put(&record, sizeof record);
    put(names, bytes);
}

/* Keeps a file that is about to lose its name. Its number is not given to another meanwhile. */
static uint64_t bury(const char *place)
{
    char path[PATH_MAX];
    struct stat file;
    if (lstat(place, &file) != 0 || !S_ISREG(file.st_mode))
        return 0;
    grave++;
    snprintf(path, sizeof path, "%s/%lu", graves, (unsigned long)grave);
    if (syscall(SYS_linkat, AT_FDCWD, place, AT_FDCWD, path, 0) != 0)
        abort();
    return grave;
}

static int open_name(int at, const char *path, int flags, mode_t mode)
{
    char place[PATH_MAX];
    struct stat file;
    if (!is_our_name(at, path, place))
        return syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&turn);
    int makes = flags & O_CREAT && stat(place, &file) != 0;
    int cuts = !makes && flags & O_TRUNC;
    int error = fault(makes ? "make" : "open");
    int done = error ? -1 : syscall(SYS_openat, at, path, cuts ? flags & ~O_TRUNC : flags, mode);
    int kept = error ? error : errno;
    if (done >= 0 && makes)
        remember_name(MADE, place, NULL, 0);
    pthread_mutex_unlock(&turn);
    if (done >= 0 && cuts && ftruncate64(done, 0) != 0) {
        kept = errno;
        close(done);
        done = -1;
    }
    errno = kept;
    return done;
}

/* The mode is there if something may be made. */
#define OPEN(at, path, flags)                                                                      \
    mode_t mode = 0;                                                                               \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                     \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }                                                                                              \
    return open_name(at, path, flags, mode)

int open64(const char *path, int flags, ...)
{
    OPEN(AT_FDCWD, path, flags);
}

int openat64(int at, const char *path, int flags, ...)
{
    OPEN(at, path, flags);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    char place[PATH_MAX];
    if (!is_our_name(at, path, place))
        return syscall(SYS_mkdirat, at, path, mode);
    pthread_mutex_lock(&turn);
    int error = fault("make");
    int done = error ? -1 : syscall(SYS_mkdirat, at, path, mode);
    int kept = error ? error : errno;
    if (done == 0)
        remember_name(MADE, place, NULL, 0);
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* A directory that is empty can be made again, and needs no grave. What is neither that nor a file,
   as a socket, is not on the disk: nobody wants it back. */
int unlinkat(int at, const char *path, int flags)
{
    char place[PATH_MAX];
    if (!is_our_name(at, path, place))
        return syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&turn);
    int error = fault("remove");
    uint64_t buried = error ? 0 : bury(place);
    int done = error ? -1 : syscall(SYS_unlinkat, at, path, flags);
    int kept = error ? error : errno;
    if (done == 0 && (buried || flags & AT_REMOVEDIR))
        remember_name(REMOVED, place, NULL, buried);
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* Counts as a change of the directory that the new name is in. */
int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags)
{
    char before[PATH_MAX], place[PATH_MAX];
    if (!is_our_name(from_at, from, before) || !is_our_name(to_at, to, place))
        return syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    pthread_mutex_lock(&turn);
    int error = fault("rename");
    uint64_t buried = error ? 0 : bury(place);
    int done = error ? -1 : syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    int kept = error ? error : errno;
    if (done == 0)
        remember_name(RENAMED, place, before, buried);
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return renameat2(from_at, from, to_at, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The same calls under their other names. */
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
    __attribute__((alias("pwrite64")));
int ftruncate(int fd, off_t length) __attribute__((alias("ftruncate64")));
int open(const char *path, int flags, ...) __attribute__((alias("open64")));
int openat(int at, const char *path, int flags, ...) __attribute__((alias("openat64")));
