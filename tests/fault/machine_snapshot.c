/* Snapshots of a process with its memory, for LD_PRELOAD. At the last real-time signal the process copies itself (a fork), and the copy
   stops. When the copy is continued, it leaves a stopped copy for the next time, breaks all its connections, as a revert of a machine
   does, and goes on from where the process was. The id of the newest copy is in the file SNAPSHOT_FILE (a long, native). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 1024 };
static volatile long *newest;

/* Past the C library: its locks may be held by what the signal interrupts, and are the copy's as they are. */
static int is_copy(void) {
    long child = syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (child > 0) *newest = child;
    return child == 0;
}

static void take_snapshot(int number) {
    (void)number;
    int kept_errno = errno;
    if (is_copy()) {
        do syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
        while (is_copy());
        for (int fd = 0; fd < MOST_DESCRIPTORS; fd++) {
            struct sockaddr_storage peer;
            socklen_t length = sizeof peer;
            if (getpeername(fd, (struct sockaddr *)&peer, &length)) continue;
            shutdown(fd, SHUT_RDWR);
            char unread[4096]; /* sent since, and not for the process that is put back */
            while (recv(fd, unread, sizeof unread, MSG_DONTWAIT) > 0);
        }
    }
    errno = kept_errno;
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SNAPSHOT_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return;
    newest = mapped;
    struct sigaction action = {.sa_handler = take_snapshot};
    sigaction(SIGRTMAX, &action, NULL);
}
