// A progress line on a terminal.

package output

import (
	"fmt"
	"io"
	"strings"
)

// Progress is one line on a terminal that is overwritten again and again. If the output is no
// terminal, it prints nothing.
type Progress struct {
	W     io.Writer
	width int // of the line that is shown
}

// Show replaces the line.
func (p *Progress) Show(line string) {
	line = Clean(line)
	if !IsTerminal(p.W) {
		return
	}
	fmt.Fprintf(p.W, "\r%s%s", line, strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.width > 0 {
		fmt.Fprintf(p.W, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}
