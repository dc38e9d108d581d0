// The screen of a program on a terminal, as SVG.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/cdc-relay/cdc-relay/internal/devenv/console"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

const terminalRows, terminalColumns = 30, 100

// watch is `status --watch` on a pseudo-terminal.
type watch struct {
	cmd  *exec.Cmd
	tty  *os.File // our end
	out  console.Recording
	read chan struct{} // closed when the program's end is closed
}

func startWatch(ctx context.Context, binary string, of *runner.Relay) (*watch, error) {
	w := &watch{cmd: exec.CommandContext(ctx, binary, "status", "--watch", "-c", of.ConfigPath(), "--admin", of.AdminSocket()), read: make(chan struct{})}
	w.cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), "TERM=xterm-256color", "NO_COLOR=")
	var err error
	if w.tty, err = pty.StartWithSize(w.cmd, &pty.Winsize{Rows: terminalRows, Cols: terminalColumns}); err != nil {
		return nil, fmt.Errorf("start status --watch: %w", err)
	}
	go func() {
		defer close(w.read)
		_, _ = io.Copy(&w.out, w.tty) //nolint:errcheck // it ends with EIO
	}()
	return w, nil
}

// A frame of the screen begins at its home and ends with what erases the rest. Between them are
// only lines and colours.
var frame = regexp.MustCompile(`(?s)\x1b\[H(.*?)\x1b\[J`)

// frame is the newest whole one.
func (w *watch) frame() (string, error) {
	all := frame.FindAllStringSubmatch(w.out.String(), -1)
	if all == nil {
		return "", fmt.Errorf("status --watch has drawn nothing: %q", w.out.String())
	}
	return all[len(all)-1][1], nil
}

func (w *watch) close() {
	_ = w.cmd.Process.Kill() //nolint:errcheck // it changes nothing and has nothing to end
	<-w.read
	_ = w.cmd.Wait() //nolint:errcheck // killed
	_ = w.tty.Close()
}

// The size of a character, and of what is around the screen.
const (
	cellWidth, cellHeight = 8.43, 17.0
	titleBar              = 36.0
)

// terminalSVG draws a frame below the command that made it.
func terminalSVG(command, frame string) string {
	var d drawing
	lines := slices.Collect(strings.Lines(frame))
	d.add(head, 2*margin+terminalColumns*cellWidth, titleBar+cellHeight*float64(len(lines))+margin, escape.Replace(command))
	d.text(margin, 23, "title", "start", "$ "+command)
	d.add(`<g xml:space="preserve">`)
	for row, line := range lines {
		d.line(line, titleBar+cellHeight*float64(row))
	}
	d.add("</g>")
	return d.String() + "</svg>\n"
}

var (
	control = regexp.MustCompile(`\x1b\[([0-9;?]*)([A-Za-z])`)
	colours = map[string]string{"31": "red", "32": "green", "33": "yellow", "34": "blue"}
)

// line draws a line: pieces of text, each in one colour.
func (d *drawing) line(line string, top float64) {
	class, column := "mono", 0
	for line = strings.TrimRight(line, "\r\n"); line != ""; {
		piece := line
		at := control.FindStringSubmatchIndex(line)
		if at != nil {
			piece = line[:at[0]]
		}
		d.piece(piece, class, column, top)
		column += utf8.RuneCountInString(piece)
		line = line[len(piece):]
		if at == nil {
			continue
		}
		codes, final := line[at[2]-at[0]:at[3]-at[0]], line[at[4]-at[0]:at[5]-at[0]]
		line = line[at[1]-at[0]:]
		if final != "m" {
			continue
		}
		class = "mono"
		for code := range strings.SplitSeq(codes, ";") {
			if code == "1" {
				class += " bold"
			}
			if colour := colours[code]; colour != "" {
				class += " full " + colour
			}
		}
	}
}

func (d *drawing) piece(text, class string, column int, top float64) {
	at := func(column int) float64 { return margin + cellWidth*float64(column) }
	rest := strings.TrimLeft(text, " ")
	spaces := len(text) - len(rest)
	if rest = strings.TrimRight(rest, " "); rest != "" {
		d.add(`<text class="%s" x="%s" y="%s" textLength="%s">%s</text>`, class, short(at(column+spaces)), short(top+13),
			short(cellWidth*float64(utf8.RuneCountInString(rest))), escape.Replace(rest))
	}
}
