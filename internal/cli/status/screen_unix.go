//go:build unix

// The screen's signals on Unix: its size has changed, or the process is suspended (Ctrl-Z, after
// the terminal was left in order) or resumed.

package status

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifyTerminal delivers the terminal's signals: its size changed, the process is suspended or
// resumed.
func notifyTerminal(signals chan<- os.Signal) {
	signal.Notify(signals, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT)
}

// suspend stops the process at SIGTSTP, after leave, and returns when it is resumed. At any other
// signal it does nothing.
func suspend(sig os.Signal, signals <-chan os.Signal, leave func()) error {
	if sig != syscall.SIGTSTP || !startedByShell() {
		return nil
	}
	leave()
	// Not SIGTSTP again: the Go runtime does not restore its default.
	if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
		return err
	}
	for sig != syscall.SIGCONT { // this thread may run on for a moment before all have stopped
		sig = <-signals
	}
	return nil
}

// startedByShell reports whether somebody will resume this process: a shell has put it into a
// process group of its own.
func startedByShell() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}
