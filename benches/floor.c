/*
 * The floor: as little as the kernel lets anybody do for a jail with all the layers, in C, static, without a plan, a report, limits or a
 * protocol. It is a measuring stick for `cargo xtask bench` and no sandbox: its filter refuses nothing.
 *
 * clone into user, mount, pid, network, ipc, uts and cgroup namespaces; map one uid; a tmpfs root with /usr and its companions read-only,
 * three devices, proc and /tmp; pivot and detach; no new privileges; Landlock; one system call filter; exec; reap.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Both headers declare mount flags, so the two calls of the old interface are made by number. */
#define DETACH 2
#define TREE_CLONE 1
#define RECURSIVE 0x8000

static void must(long result, const char *step) {
    if (result < 0) {
        fprintf(stderr, "floor: %s: %s\n", step, strerror(errno));
        _exit(125);
    }
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    must(fd, path);
    must(write(fd, text, strlen(text)), path);
    close(fd);
}

/* A copy of a tree of the host, to be attached. */
static int tree(const char *path, int read_only) {
    int fd = syscall(SYS_open_tree, AT_FDCWD, path, TREE_CLONE | RECURSIVE | O_CLOEXEC);
    must(fd, path);
    if (read_only) {
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
        must(syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | RECURSIVE, &attr, sizeof attr), "mount_setattr");
    }
    return fd;
}

static int filesystem(const char *kind) {
    int context = syscall(SYS_fsopen, kind, FSOPEN_CLOEXEC);
    must(context, kind);
    must(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0), kind);
    int fd = syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    must(fd, kind);
    close(context);
    return fd;
}

static void attach(int fd, int root, const char *at) {
    must(syscall(SYS_move_mount, fd, "", root, at, MOVE_MOUNT_F_EMPTY_PATH), at);
    close(fd);
}

static void build_root(void) {
    static const char *const shared[] = {"usr", "lib", "lib64", "bin", "etc"};
    static const char *const devices[] = {"dev/null", "dev/zero", "dev/urandom"};
    int root = filesystem("tmpfs");
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        char host[32], link[64];
        snprintf(host, sizeof host, "/%s", shared[i]);
        ssize_t length = readlink(host, link, sizeof link - 1);
        if (length > 0) {
            link[length] = 0;
            must(symlinkat(link, root, shared[i]), "symlink");
            continue;
        }
        if (access(host, F_OK)) continue;
        must(mkdirat(root, shared[i], 0755), shared[i]);
        attach(tree(host, 1), root, shared[i]);
    }
    must(mkdirat(root, "dev", 0755), "dev");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char host[32];
        snprintf(host, sizeof host, "/%s", devices[i]);
        close(openat(root, devices[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        attach(tree(host, 0), root, devices[i]);
    }
    must(mkdirat(root, "proc", 0755), "proc");
    attach(filesystem("proc"), root, "proc");
    must(mkdirat(root, "tmp", 01777), "tmp");
    attach(filesystem("tmpfs"), root, "tmp");
    /* Over a directory of the old root, which goes with the one detach. */
    must(syscall(SYS_move_mount, root, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH), "attaching the root");
    must(fchdir(root), "entering the root");
    must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    must(syscall(SYS_umount2, ".", DETACH), "detaching the old root");
    must(chdir("/"), "chdir");
}

static void landlock(void) {
    static const char *const readable[] = {"/usr", "/lib", "/lib64", "/bin", "/etc", "/proc"};
    uint64_t read = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    struct landlock_ruleset_attr attr = {.handled_access_fs = (LANDLOCK_ACCESS_FS_REFER << 1) - 1};
    int rules = syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    must(rules, "landlock_create_ruleset");
    for (size_t i = 0; i < sizeof readable / sizeof *readable; i++) {
        struct landlock_path_beneath_attr beneath = {.allowed_access = read, .parent_fd = open(readable[i], O_PATH | O_CLOEXEC)};
        if (beneath.parent_fd < 0) continue;
        must(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0), "landlock_add_rule");
        close(beneath.parent_fd);
    }
    must(syscall(SYS_landlock_restrict_self, rules, 0), "landlock_restrict_self");
    close(rules);
}

/* As long as ours, so that compiling it costs the same. It decides nothing. */
static void filter(void) {
    enum { LENGTH = 320 };
    static struct sock_filter program[LENGTH];
    program[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 1; i < LENGTH - 1; i++) program[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 100000 + i, 0, 0);
    program[LENGTH - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog whole = {.len = LENGTH, .filter = program};
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole), "seccomp");
}

int main(int count, char **words) {
    if (count < 2) return 125;
    uid_t uid = getuid();
    gid_t gid = getgid();
    struct clone_args arguments = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
        .exit_signal = SIGCHLD,
    };
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    must(child, "clone3");
    if (child == 0) {
        char map[64];
        write_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        write_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        write_file("/proc/self/gid_map", map);
        build_root();
        must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
        landlock();
        filter();
        execv(words[1], words + 1);
        must(-1, words[1]);
    }
    int status = 0;
    must(waitpid(child, &status, 0), "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
