//go:build !unix

package status

import "os"

// notifyTerminal delivers nothing: the size is read for every frame.
func notifyTerminal(chan<- os.Signal) {}

func suspend(os.Signal, <-chan os.Signal, func()) error { return nil }
