/*
 * A disk that fails when it is told to, and that remembers what a power cut would take back.
 *
 * Loaded before the C library, it stands in front of the calls by which a program writes to files
 * below one directory; all other files and sockets pass. The environment says where things are:
 *
 *   DISK_DIRECTORY  the directory, without links in its name
 *   DISK_UNDO       where to write down how every change is undone, until a sync has made it safe
 *   DISK_FAULT      a file that, once it is there, says what fails: `<call> <error> <after>`, as in
 *                   `write ENOSPC 3` (the fourth write from now on, and all later ones),
 *                   `sync EIO 0` (the next sync, once: the system forgets such an error when it has
 *                   told of it) or `write short 0` (every write of more than a sector takes half of it)
 *
 * Changes lie in the undo file in the order in which they are made, and before they are made: one
 * that was never made is undone by writing what is there. Names are not part of it: a file that
 * was made or renamed stays so. `undo.rs` reads what this writes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

enum kind { CHANGE = 1, SYNCED = 2, FAILED = 3, REMOVED = 4 };

/* In the undo file, followed by `bytes` bytes that were there before, and behind them zeros. */
struct record {
    uint32_t kind;
    uint32_t bytes;
    uint64_t file;    /* inode */
    uint64_t offset;  /* of the change; of a sync: the place in the undo file where it began */
    uint64_t written; /* bytes that are written from there on */
    uint64_t length;  /* of the file before */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char directory[4096];
static const char *fault_file;
static int undo_file = -1;
static uint64_t undo_length;

static char fault_call[16], fault_error[16];
static long fault_after;
static int fault_is_known;

__attribute__((constructor)) static void begin(void)
{
    const char *wanted = getenv("DISK_DIRECTORY"), *undo = getenv("DISK_UNDO");
    fault_file = getenv("DISK_FAULT");
    if (wanted == NULL || undo == NULL || fault_file == NULL)
        return;
    snprintf(directory, sizeof directory, "%s/", wanted);
    undo_file = open(undo, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (undo_file < 0)
        abort();
}

/* Whether this is a regular file below the directory. */
static int is_ours(int fd, struct stat *found)
{
    char link[64], path[4096];
    if (undo_file < 0 || fd == undo_file || fstat(fd, found) != 0 || !S_ISREG(found->st_mode))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t prefix = strlen(directory);
    return length > (ssize_t)prefix && strncmp(path, directory, prefix) == 0;
}

/* A harness whose own disk fails has nothing to say about anybody else's. */
static void put(const void *bytes, size_t length)
{
    const char *from = bytes;
    undo_length += length;
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
    int reader = bytes > 0 ? open(link, O_RDONLY | O_CLOEXEC) : -1;
    if (before == NULL || (bytes > 0 && pread(reader, before, bytes, offset) != (ssize_t)bytes))
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

/* The error that this call has to meet; 0 for none, -1 for taking half. */
static int fault(const char *call)
{
    if (!fault_is_known) {
        char text[64] = {0};
        int fd = open(fault_file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return 0;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        if (length <= 0 || sscanf(text, "%15s %15s %ld", fault_call, fault_error, &fault_after) != 3)
            abort();
        fault_is_known = 1;
    }
    if (strcmp(fault_call, call) != 0)
        return 0;
    if (fault_after > 0) {
        fault_after--;
        return 0;
    }
    if (strcmp(fault_error, "short") == 0)
        return -1;
    if (strcmp(call, "sync") == 0)
        fault_call[0] = 0;
    return strcmp(fault_error, "ENOSPC") == 0 ? ENOSPC : EIO;
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
    int error = fault("write");
    if (error > 0) {
        errno = error;
    } else {
        if (error < 0 && length > SECTOR)
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
    /* What is cut off comes back; nothing is written. */
    remember(fd, &file, length, 0, UINT64_MAX);
    int done = syscall(SYS_ftruncate, fd, length);
    int kept = errno;
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

/* Changes that are made while the sync runs are not safe with it. */
static int make_safe(int fd, long call)
{
    struct stat file;
    if (!is_ours(fd, &file))
        return syscall(call, fd);
    pthread_mutex_lock(&turn);
    int error = fault("sync");
    struct record record = {0, 0, file.st_ino, undo_length, 0, 0};
    pthread_mutex_unlock(&turn);
    int done = error ? -1 : syscall(call, fd);
    int kept = error ? error : errno;
    record.kind = done == 0 ? SYNCED : FAILED;
    pthread_mutex_lock(&turn);
    put(&record, sizeof record);
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

/* The system gives the number of a file that is gone to a new one. */
int unlinkat(int at, const char *path, int flags)
{
    struct stat file;
    int is_file = undo_file >= 0 && fstatat(at, path, &file, AT_SYMLINK_NOFOLLOW) == 0 &&
                  S_ISREG(file.st_mode) && file.st_nlink == 1;
    pthread_mutex_lock(&turn);
    int done = syscall(SYS_unlinkat, at, path, flags);
    int kept = errno;
    if (done == 0 && is_file) {
        struct record record = {REMOVED, 0, file.st_ino, 0, 0, 0};
        put(&record, sizeof record);
    }
    pthread_mutex_unlock(&turn);
    errno = kept;
    return done;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

/* The same calls under their other names. */
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
    __attribute__((alias("pwrite64")));
int ftruncate(int fd, off_t length) __attribute__((alias("ftruncate64")));
