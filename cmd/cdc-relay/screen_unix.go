//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// listen has the terminal's own signals heard: it has another size, it goes to the shell or comes back.
func (s *screen) listen() {
	signal.Notify(s.heard, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT)
}

func (s *screen) signal(sig os.Signal) error {
	if sig == syscall.SIGTSTP && jobOfAShell() {
		s.close()
		// Not SIGTSTP again: the runtime does not give that its default back.
		if err := unix.Kill(unix.Getpid(), unix.SIGSTOP); err != nil {
			return err
		}
		for sig != syscall.SIGCONT { // this thread may run on for a moment before all have stopped
			sig = <-s.heard
		}
	}
	return s.draw()
}

// jobOfAShell is true when somebody will let this process go on once it has stopped: a shell has put it into a group of its own.
func jobOfAShell() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}
