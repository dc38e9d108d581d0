// Ending what the process started when the process is gone, however it went.

package processes

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Every server and relay is started with OwnerVariable set to a token of this process. One shell
// per process, the watcher, waits at the read end of a pipe whose write end only this process
// holds. The kernel closes it at exit, at a crash and at SIGKILL alike; the watcher then ends every
// process that carries the token and removes the directory. Searching by the token needs no list of
// pids, so there is no moment at which a process runs but is not yet listed, and no pid that
// meanwhile belongs to somebody else.

const OwnerVariable = "CDC_RELAY_DEVENV"

// SIGQUIT is PostgreSQL's immediate shutdown, by which the postmaster takes its children along; the
// Erlang VM and the relay end by it too. Java would only print its threads: it gets SIGKILL, as
// does after some 2 s what is still there (a stopped process, say). A PostgreSQL that was killed
// leaves its segment of shared memory, whose id is in line 7 of its postmaster.pid.
const watcherScript = `
while read -r _; do :; done
owned() { grep -lszxF "$1" /proc/[0-9]*/environ | cut -d/ -f3; }
n=0
while pids=$(owned "$1") && [ -n "$pids" ] && [ $n -lt 150 ]; do
	[ $n -eq 0 ] && for pid in $pids; do
		case $(cat "/proc/$pid/comm") in java) kill -KILL "$pid" ;; *) kill -QUIT "$pid" ;; esac
	done
	[ $n -ge 15 ] && kill -KILL $pids
	n=$((n + 1))
	sleep 0.1
done
for file in "$2"/*/data/postmaster.pid; do
	[ -e "$file" ] && ipcrm -m "$(sed -n '7s/.* //p' "$file")" 2>/dev/null
done
rm -rf "$2"
`

// owner is what this process shares with its watcher.
type owner struct {
	Variable string   // OwnerVariable=token, in the environment of everything started
	Dir      string   // holds every directory of every server; removed by the watcher
	alive    *os.File // write end of the watcher's pipe; closed by the kernel
}

// StartOwner makes this process's token and directory and starts the watcher, once. Later calls
// return the same result, or the same error.
var StartOwner = sync.OnceValues(newOwner)

func newOwner() (_ *owner, err error) {
	token := make([]byte, 16)
	if _, err := rand.Read(token); err != nil {
		return nil, fmt.Errorf("make token: %w", err)
	}
	o := &owner{Variable: OwnerVariable + "=" + hex.EncodeToString(token)}
	if o.Dir, err = os.MkdirTemp("", "cdc-relay-"); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	// PostgreSQL may run as another user and must be able to pass.
	if err := os.Chmod(o.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("open directory to other users: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe to watcher: %w", err)
	}
	defer read.Close()
	o.alive = write

	watcher := exec.Command("/bin/sh", "-c", watcherScript, "cdc-relay-watcher", o.Variable, o.Dir)
	watcher.Stdin = read
	watcher.Dir = "/"
	watcher.Env = EnvironWithout(OwnerVariable) // an outer watcher must not end this one
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := watcher.Start(); err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	return o, watcher.Process.Release()
}

// NewDir makes a directory that lives no longer than this process.
func NewDir(name string) (string, error) {
	o, err := StartOwner()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(o.Dir, name+"-")
	if err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	return dir, nil
}

// TempDir is a directory for the temporary files of a command and its children, which may be
// killed. It lives no longer than this process. Other users may pass: PostgreSQL runs as one.
func TempDir() (string, error) {
	dir, err := NewDir("tmp")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// EnvironWithout is this process's environment, as NAME=value, without one variable.
func EnvironWithout(name string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, name+"=") {
			env = append(env, v)
		}
	}
	return env
}

// RemoveDir removes a directory made by newDir.
func RemoveDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Base(dir), err)
	}
	return nil
}
