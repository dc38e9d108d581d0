// Tables, numbers, sizes and times as people read them on a terminal.

package command

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Table is a table that is printed for people.
type Table struct {
	Header []string
	Rows   [][]string
	// columns that may be cut so that a line fits the terminal; columns of numbers are never among
	// them
	Cut []int
	// Below has a line to print below each row, "" for none; nil means no such lines.
	Below []string
}

// The widths of a table. A column is not cut below minColumn. A terminal that does not tell its
// width counts as defaultWidth.
const (
	minColumn    = 8
	defaultWidth = 80
	gap          = 2 // columns between two columns of the table
)

// Write aligns and prints the columns. On a terminal the header is bold, and the widest of the
// columns in Cut are cut until a line fits. Elsewhere every text is complete.
func (t *Table) Write(w io.Writer) error {
	width := 0
	if IsTerminal(w) {
		width = terminalWidth(w)
	}
	for i, line := range t.lines(width) {
		if i == 0 && HasColor(w) {
			line = "\x1b[1m" + line + "\x1b[0m"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// lines returns the table in lines of at most width columns. A width of 0 means that lines may have
// any length.
func (t *Table) lines(width int) (out []string) {
	rows := [][]string{t.Header}
	for _, row := range t.Rows {
		row = slices.Clone(row)
		for i := range row {
			row[i] = Clean(row[i])
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(t.Header))
	total := gap * (len(widths) - 1)
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], Columns(text))
		}
	}
	for _, n := range widths {
		total += n
	}
	for ; width > 0 && total > width; total-- {
		widest := -1
		for _, i := range t.Cut {
			if widths[i] > minColumn && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	for n, row := range rows {
		line := ""
		for i, text := range row {
			text = Cut(text, widths[i], "…")
			line += text + strings.Repeat(" ", widths[i]-Columns(text)+gap)
		}
		out = append(out, strings.TrimRight(line, " "))
		if n > 0 && n <= len(t.Below) && t.Below[n-1] != "" {
			below := strings.Repeat(" ", 2*gap) + Clean(t.Below[n-1])
			if width > 0 {
				below = Cut(below, width, "…")
			}
			out = append(out, below)
		}
	}
	return out
}

// If returns s if yes is true, and "" otherwise.
func If(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

// Since says how long ago at was, between two texts. It returns "" when at is nil.
func Since(now time.Time, before string, at *time.Time, after string) string {
	if at == nil {
		return ""
	}
	return before + Age(now.Sub(*at)) + after
}

// Count writes a number with its noun: 1 event, 2 events.
func Count[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Thousands(uint64(n)) + " " + noun + "s"
}

// Thousands writes a number in groups of digits: 1,234,567.
func Thousands(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Bytes writes a size: 1.5 KiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// Age writes a time span as exactly as is of use: 0.3s, 42s, 5m7s, 3h2m, 4d5h. A negative span,
// from clocks that disagree, is 0s.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d <= 0:
		return "0s"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
