//go:build !unix

// The screen's signals on systems other than Unix: there are none, so its size is read for every
// frame.

package status

import "os"

// notifyTerminal delivers nothing: the size is read for every frame.
func notifyTerminal(chan<- os.Signal) {}

func suspend(os.Signal, <-chan os.Signal, func()) error { return nil }
