package setting

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// readPassword reads a password as a key of the configuration does.
func readPassword(t *testing.T, text string) (Secret, error) {
	t.Helper()
	var s Secret
	r := Reader{Env: map[string]string{"AWS": "aws"}}
	k := Password("password", &s)
	k.Set(&r, "source.password", &Node{Kind: Scalar, Text: text})
	if len(r.Faults) > 0 {
		return s, errors.New(r.Faults[0].What)
	}
	return s, nil
}

// script makes a program of some lines for sh.
func script(t *testing.T, lines string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+lines+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSplitCommand(t *testing.T) {
	for text, want := range map[string][]string{
		"aws rds":               {"aws", "rds"},
		"  aws   rds  ":         {"aws", "rds"},
		`a 'b c' "d 'e'" ''`:    {"a", "b c", "d 'e'", ""},
		`a --x='b c'd "" $HOME`: {"a", "--x=b cd", "", "$HOME"},
		`a \n ; | > *`:          {"a", `\n`, ";", "|", ">", "*"},
		"":                      nil,
		"  ":                    nil,
		"''":                    nil,
		"a 'b":                  nil,
		`a "b' c`:               nil,
	} {
		got, err := splitCommand(text)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: got %q, %v", text, []string(got), err)
		}
	}
}

// A command runs at each use, and not when the configuration is read.
func TestExecRunsAtEachUse(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	tool := script(t, `echo "$2" >> "$1"; echo "token-$(wc -l < "$1")"; echo noise >&2`)
	s, err := readPassword(t, "${exec:"+tool+" "+count+" 'a b'}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(count); err == nil {
		t.Error("it has run already")
	}
	for _, want := range []string{"token-1", "token-2"} {
		if got, err := s.Read(t.Context()); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if text, err := os.ReadFile(count); err != nil || string(text) != "a b\na b\n" {
		t.Errorf("the argument is %q, %v", text, err)
	}
	if !s.IsSet() || !s.Runs() || s.Files() != nil || s.String() != "${exec:"+tool+" [redacted]}" {
		t.Errorf("it is shown as %s", s)
	}
}

// A command stands for a password alone, and its program exists: else the start ends.
func TestExecFaults(t *testing.T) {
	for text, want := range map[string]string{
		"${exec:no-such-tool --token x}": "run no-such-tool: executable file not found in $PATH",
		"${exec:/no/such/tool}":          "run /no/such/tool: ",
		"${exec:}":                       "names no program",
		"${exec:sh 'a}":                  "a quote that is not closed",
		"a${exec:sh}":                    "stands alone",
		"${exec:sh}b":                    "stands alone",
		"${exec:sh ${AWS}}":              "stands alone",
	} {
		if _, err := readPassword(t, text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--token") {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if s, err := readPassword(t, "$${exec:sh}"); err != nil || s.Runs() {
		t.Errorf("a literal: %v", err)
	}
	var url Secret
	for _, k := range []Key{Address("url", &url), Text("slot", new(string))} {
		var r Reader
		if k.Set(&r, "source."+k.Name, &Node{Kind: Scalar, Text: "${exec:sh}"}); len(r.Faults) != 1 || !strings.Contains(r.Faults[0].What, "only for user, password and client_secret") {
			t.Errorf("%s: %v", k.Name, r.Faults)
		}
	}
	var r Reader
	if _, ok := r.FileSecret("admin.tokens[0].value", &Node{Kind: Scalar, Text: "${exec:sh}"}); ok {
		t.Error("a token of the API runs a command")
	}
}

// What a command does wrong is one line, without what it printed.
func TestHostileExec(t *testing.T) {
	for lines, want := range map[string]string{
		"exit 0":                                ": it prints nothing",
		"echo; echo ' '":                        ": it prints nothing",
		"echo xyzzy; echo plugh":                ": it prints 2 lines, want one",
		"head -c 10000000 /dev/zero":            ": it prints more than 64 KiB, the most a secret may have",
		"yes xyzzy":                             ": it prints more than 64 KiB, the most a secret may have",
		"exit 3":                                ": exit status 3",
		"kill -9 $$":                            ": signal: killed",
		"echo 'no role' >&2; exit 1":            ": exit status 1: no role",
		"echo xyzzy; echo 'xyzzy?' >&2; exit 1": ": exit status 1: [redacted]?",
		"echo a >&2; echo >&2; echo 'b\tc' >&2; echo >&2; exit 1": ": exit status 1: b c",
		"echo password=xyzzy >&2; exit 1":                         ": exit status 1: password=[redacted]",
		"echo 'unknown --pin=frotz, -pfrotz' >&2; exit 1":         ": exit status 1: unknown --pin=[redacted], -p[redacted]",
		`echo '{"token": "xyzzy"}' >&2; exit 1`:                   `: exit status 1: {"token": "[redacted]"}`,
		"echo 'Authorization: Bearer xyzzy' >&2; exit 1":          ": exit status 1: Authorization: Bearer [redacted]",
		"echo 'bad secret xyzzy7' >&2; exit 1":                    ": exit status 1: bad secret [redacted]",
		"echo AKIAxyzzy0xyzzy0 was refused >&2; exit 1":           ": exit status 1: [redacted] was refused",
		"echo 'token has expired' >&2; exit 1":                    ": exit status 1: token has expired",
		"echo \"$1 is wrong\" >&2; exit 1":                        ": exit status 1: [redacted] is wrong",
		"echo; echo xyzzy >&2":                                    ": it prints nothing: xyzzy",
		"printf '%0300d' 0 | tr 0 é >&2; exit 1":                  ": exit status 1: ",
	} {
		s, err := readPassword(t, "${exec:"+script(t, lines)+" argument --pin=frotz -pfrotz}")
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || got != "" || strings.ContainsAny(err.Error(), "\n\t") || len(err.Error()) > 600 {
			t.Errorf("%s: got %q, %v, want %s", lines, got, err, want)
		}
		if strings.Contains(lines, "exit") && err != nil && strings.Contains(err.Error(), "xyzzy") {
			t.Errorf("%s: %v", lines, err)
		}
	}
}

// A program that may not be executed is a fault of the configuration; one that went away later is
// an error of each use, and may come back.
func TestExecNotExecutable(t *testing.T) {
	tool := script(t, "echo token")
	s, err := readPassword(t, "${exec:"+tool+"}")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tool, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, fails := range []func() error{
		func() error { _, err := s.Read(t.Context()); return err },
		func() error { _, err := readPassword(t, "${exec:"+tool+"}"); return err },
	} {
		if err := fails(); err == nil || !strings.HasSuffix(err.Error(), "run "+tool+": permission denied") {
			t.Errorf("got %v", err)
		}
	}
	if err := os.Chmod(tool, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context()); err != nil || got != "token" {
		t.Errorf("got %q, %v", got, err)
	}
}

// What a command leaves behind ends with it: the wait for its output, too.
func TestExecLeavesAChild(t *testing.T) {
	adoptOrphans(t)
	pid := filepath.Join(t.TempDir(), "pid")
	s, err := readPassword(t, "${exec:"+script(t, "sleep 1000 &\necho $! > "+pid+"; echo token")+"}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context()); err == nil {
		t.Errorf("got %q", got)
	}
	wantGone(t, pid)
}

// So does what has closed its output, and the command has printed what it should.
func TestExecLeavesADaemon(t *testing.T) {
	adoptOrphans(t)
	pid := filepath.Join(t.TempDir(), "pid")
	s, err := readPassword(t, "${exec:"+script(t, "sleep 1000 >/dev/null 2>&1 &\necho $! > "+pid+"; echo token")+"}")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context()); err != nil || got != "token" {
		t.Errorf("got %q, %v", got, err)
	}
	wantGone(t, pid)
}

// A command that hangs is ended, with its children.
func TestExecHangs(t *testing.T) {
	adoptOrphans(t)
	pid := filepath.Join(t.TempDir(), "pid")
	s, err := readPassword(t, "${exec:"+script(t, "sleep 1000 &\necho $! > "+pid+"; echo token; wait")+"}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.written().run.run(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "it has not ended within 1s") {
		t.Errorf("got %v", err)
	}
	wantGone(t, pid)
}

// A command ends with the caller that waits for it.
func TestExecEndsWithItsCaller(t *testing.T) {
	adoptOrphans(t)
	pid := filepath.Join(t.TempDir(), "pid")
	s, err := readPassword(t, "${exec:"+script(t, "sleep 1000 &\necho $! > "+pid+".new; mv "+pid+".new "+pid+"; wait")+"}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		await.Until(t, "the command", func() bool { _, err := os.Stat(pid); return err == nil })
		cancel()
	}()
	if _, err := s.Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantGone(t, pid)
}

// adoptOrphans makes the test's process what the relay is in its container: the parent of all whose
// own has ended. Nobody else waits for them then.
func adoptOrphans(t *testing.T) {
	t.Helper()
	const childSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, childSubreaper, 1, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// wantGone wants that a process has ended, whose number a file has, and is no zombie.
func wantGone(t *testing.T, file string) {
	t.Helper()
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	status := "/proc/" + strings.TrimSpace(string(pid)) + "/stat"
	await.Until(t, "the end of the command's child", func() bool {
		_, err := os.Stat(status)
		return errors.Is(err, os.ErrNotExist)
	})
}
