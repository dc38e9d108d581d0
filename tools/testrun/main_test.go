package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeGo puts a script in the place of the program go.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

const begun = `echo '{"Action":"start","Package":"p"}'; echo '{"Action":"run","Package":"p","Test":"TestA"}'` + "\n"

func TestExitCodeIsThatOfGoTest(t *testing.T) {
	passed := begun + `echo '{"Action":"pass","Package":"p","Test":"TestA"}'; echo '{"Action":"pass","Package":"p"}'` + "\n"
	for script, want := range map[string]int{passed + "exit 0": 0, passed + "exit 2": 2, passed + "kill -KILL $$": 1, "exit 0": 1} {
		fakeGo(t, script)
		if code, err := run([]string{"./..."}); code != want || err != nil {
			t.Errorf("after %q: exit code %d, %v; want %d", script, code, err, want)
		}
	}
}

// An interrupt ends go test and its children, also those that do not listen to it.
func TestInterruptEndsEverything(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	fakeGo(t, begun+fmt.Sprintf("trap '' INT\nsleep 600 &\necho $! >%[1]s.new\nmv %[1]s.new %[1]s\nwait", file))
	code := make(chan int, 1)
	go func() {
		c, err := run(nil)
		if err != nil {
			t.Error(err)
		}
		code <- c
	}()
	var child int
	for child == 0 {
		text, err := os.ReadFile(file)
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // a poll
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 130 {
		t.Errorf("exit code %d", c)
	}
	for { // it is killed, and may take a moment to end; nobody may have reaped it yet
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // a poll
	}
}
