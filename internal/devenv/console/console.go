// Package console is the output of the demo and the shop: lines that stay, and below them one line
// of numbers.
package console

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Console is the output. On a terminal the line of numbers is overwritten; elsewhere it is written
// every five seconds, if it has changed. Its methods may be called from several goroutines.
type Console struct {
	out     io.Writer
	width   func() int // of the terminal; nil: it is none
	colours bool
	began   time.Time

	mu   sync.Mutex
	line string    // as it stands on the terminal, or what was written last elsewhere
	next time.Time // when it is due elsewhere
}

const (
	plainEvery = 5 * time.Second
	eraseLine  = "\r\x1b[K" // ECMA-48
)

// New writes to f, in colours if it is a terminal that may have some (https://no-color.org).
func New(f *os.File) *Console {
	c := &Console{out: f, began: time.Now()}
	if !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb" {
		return c
	}
	c.colours = os.Getenv("NO_COLOR") == ""
	c.width = func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
	return c
}

// To writes to a file that is no terminal, or to memory.
func To(out io.Writer) *Console { return &Console{out: out, began: time.Now()} }

// clock is the time since the beginning, in minutes and seconds.
func (c *Console) clock() string {
	s := int(time.Since(c.began).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Say writes a line that stays.
func (c *Console) Say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.clock() + "  " + fmt.Sprintf(format, args...) + "\n"
	if c.width != nil {
		text = eraseLine + text + c.line
	}
	fmt.Fprint(c.out, text)
}

// Show writes the numbers.
func (c *Console) Show(numbers string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := c.clock() + "  " + numbers
	if c.width != nil {
		line := []rune(text)
		c.line = string(line[:min(len(line), max(0, c.width()-1))])
		fmt.Fprint(c.out, eraseLine+c.line)
		return
	}
	if now := time.Now(); now.After(c.next) && numbers != c.line {
		c.line, c.next = numbers, now.Add(plainEvery)
		fmt.Fprintln(c.out, text)
	}
}

// Print writes lines below everything; the numbers are gone then.
func (c *Console) Print(lines ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := strings.Join(lines, "\n") + "\n"
	if c.width != nil {
		text = eraseLine + text
	}
	c.line = ""
	fmt.Fprint(c.out, text)
}

// Green is a text in green, where there are colours.
func (c *Console) Green(s string) string { return c.paint("32", s) }

// Red is a text in red.
func (c *Console) Red(s string) string { return c.paint("31", s) }

// paint is ECMA-48's Select Graphic Rendition.
func (c *Console) paint(code, s string) string {
	if !c.colours {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// Thousands writes a number with a comma after every three digits.
func Thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Thousands(n/1000), n%1000)
}

// Size writes a number of bytes in the unit that leaves at most four digits.
func Size(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	amount, units := float64(n)/1024, []string{"KiB", "MiB", "GiB"}
	for amount >= 1000 && len(units) > 1 {
		amount, units = amount/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", amount, units[0])
}

// Short writes a latency with three digits or fewer, in ms or s.
func Short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", 1e3*d.Seconds())
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", 1e3*d.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
