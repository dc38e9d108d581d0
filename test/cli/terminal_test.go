package cli

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// terminal is a pseudo-terminal with a program on it, and what one would see there.
type terminal struct {
	t    *testing.T
	file *os.File // our end
	cmd  *exec.Cmd
	read chan struct{} // closed when the program's end is closed

	mu     sync.Mutex
	screen vt
}

// onTerminal starts a program on a terminal of so many rows and columns.
func onTerminal(t *testing.T, rows, columns uint16, env []string, binary string, args ...string) *terminal {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR="}, env...)...)
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	must(t, err)
	term := &terminal{t: t, file: file, cmd: cmd, read: make(chan struct{}), screen: vt{rows: int(rows), columns: int(columns)}}
	go term.copy()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-term.read
		_ = cmd.Wait()
		must(t, file.Close())
	})
	return term
}

func (term *terminal) copy() {
	defer close(term.read)
	buf := make([]byte, 4096)
	for {
		n, err := term.file.Read(buf) // EIO at the end
		term.mu.Lock()
		term.screen.write(string(buf[:n]))
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) resize(rows, columns uint16) {
	term.t.Helper()
	term.mu.Lock()
	term.screen.rows, term.screen.columns = int(rows), int(columns)
	term.mu.Unlock()
	must(term.t, pty.Setsize(term.file, &pty.Winsize{Rows: rows, Cols: columns}))
}

// types sends keys.
func (term *terminal) types(keys string) {
	term.t.Helper()
	_, err := term.file.WriteString(keys)
	must(term.t, err)
}

// look is the screen as it is.
func (term *terminal) look() vt {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.copy()
}

// shows waits until a line of the screen begins so, and returns it.
func (term *terminal) shows(begin string) (line string) {
	term.t.Helper()
	eventually(term.t, func() string {
		seen := term.look()
		for _, shown := range seen.lines {
			if strings.HasPrefix(shown, begin) {
				line = shown
				return ""
			}
		}
		return fmt.Sprintf("no line begins with %q:\n%s\n%s", begin, strings.Join(seen.lines, "\n"), seen.fault)
	})
	return line
}

// exit waits for the program's end and gives its code.
func (term *terminal) exit() int {
	term.t.Helper()
	<-term.read
	_ = term.cmd.Wait()
	if status, ok := term.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return -int(status.Signal())
	}
	return term.cmd.ProcessState.ExitCode()
}

// vt is as much of a terminal as `status --watch` uses; what it does not know is a fault.
type vt struct {
	rows, columns int
	lines         []string
	updating      bool   // nothing is shown until the update is complete
	coloured      bool   // something is
	pending       string // an incomplete sequence
	next          []string
	fault         string
}

func (v *vt) copy() vt {
	seen := *v
	seen.lines = append([]string{}, v.lines...)
	return seen
}

var control = regexp.MustCompile(`^(?:\x1b\[(\??[0-9;]*)([A-Za-z])|\r+\n)`)

// begun matches a sequence of which the rest has not come.
var begun = regexp.MustCompile(`^(?:\x1b(?:\[\??[0-9;]*)?|\r+)$`)

func (v *vt) write(text string) {
	text = v.pending + text
	v.pending = ""
	for text != "" {
		if found := control.FindStringSubmatch(text); found != nil {
			v.control(found[1], found[2])
			text = text[len(found[0]):]
			continue
		}
		if begun.MatchString(text) {
			v.pending = text // the rest comes
			return
		}
		// the rest was lost: a key that signals drops what is on its way to the terminal
		if text[0] == '\x1b' || text[0] == '\r' {
			text = text[1:]
			continue
		}
		end := strings.IndexAny(text, "\x1b\r")
		if end < 0 {
			end = len(text)
		}
		if len(v.next) > 0 {
			v.next[len(v.next)-1] += text[:end]
		}
		text = text[end:]
	}
}

// control does what one sequence says; a line end has no final.
func (v *vt) control(parameter, final string) {
	switch parameter + final {
	case "?2026h":
		v.updating = true
	case "?2026l":
		v.updating, v.lines = false, v.next[:len(v.next)-1] // the cursor is below the last one
		v.check()
	case "H":
		if !v.updating {
			v.fault = "a frame is drawn in pieces"
		}
		v.next = []string{""}
	case "K", "J", "2J":
	case "":
		v.next = append(v.next, "")
	default:
		if _, err := strconv.Atoi(strings.ReplaceAll(parameter, ";", "")); final != "m" || err != nil {
			v.fault = fmt.Sprintf("an unknown sequence %q", parameter+final)
		}
		v.coloured = true
	}
}

// check notes a frame that does not fit. A program may draw its frame for the size of a moment ago.
func (v *vt) check() {
	v.fault = ""
	if len(v.lines) >= v.rows {
		v.fault = fmt.Sprintf("%d lines on %d rows", len(v.lines), v.rows)
	}
	for _, line := range v.lines {
		if n := len([]rune(line)); n > v.columns {
			v.fault = fmt.Sprintf("%d characters on %d columns: %s", n, v.columns, line)
		}
	}
}
