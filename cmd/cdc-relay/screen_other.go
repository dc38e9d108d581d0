//go:build !unix

package main

import "os"

// listen hears nothing: the size is asked for at every frame.
func (s *screen) listen() {}

func (s *screen) signal(os.Signal) error { return s.draw() }
