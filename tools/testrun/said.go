// What a failed test has said itself, found among all that was printed: the logs of the servers
// that it shows at its end are longer than the reason why it does, and a log of CI may be cut off.

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
)

// What is shown of it.
const (
	mostParts = 30       // of a test: half of them the first, half the last
	mostLines = 5        // of a part: so many first ones, and so many last ones
	mostBytes = 500      // of each of the two
	mostSaid  = 32 << 10 // bytes of all tests together
)

var (
	// partBegins is where t.Log, t.Error or t.Fatal begins, which go test -json does not tell
	// apart, or a process says why it ends.
	partBegins = regexp.MustCompile(`^(    \S+\.go:\d+: |panic: |fatal error: )`)
	partGoesOn = []byte("        ")
)

// said is the beginnings and ends of what a test has said, in the order in which it did.
func said(output []byte) []byte {
	var parts [][]byte
	inside := false
	for line := range bytes.Lines(output) {
		switch {
		case partBegins.Match(line):
			parts, inside = append(parts, nil), true
		case !bytes.HasPrefix(line, partGoesOn):
			inside = false
		}
		if inside {
			parts[len(parts)-1] = append(parts[len(parts)-1], line...)
		}
	}
	var out []byte
	for i, part := range parts {
		switch left := len(parts) - mostParts; {
		case left <= 0 || i < mostParts/2 || i >= mostParts/2+left:
			out = append(out, shortened(part)...)
		case i == mostParts/2:
			out = fmt.Appendf(out, "    … %d more …\n", left)
		}
	}
	return out
}

// shortened is as much of a part as is shown: how it begins, and how it ends. A log that is shown
// because a test has waited in vain says in its last lines where it stood still.
func shortened(part []byte) []byte {
	lines := slices.Collect(bytes.Lines(part))
	first := fitting(lines)
	backward := slices.Clone(lines[first:])
	slices.Reverse(backward)
	last := fitting(backward)
	switch {
	case first == 0:
		return fmt.Appendf(nil, "%s …\n", bytes.ToValidUTF8(part[:mostBytes], nil))
	case first+last == len(lines):
		return part
	}
	out := bytes.TrimSuffix(bytes.Join(lines[:first], nil), []byte("\n"))
	return append(fmt.Appendf(nil, "%s …\n", out), bytes.Join(lines[len(lines)-last:], nil)...)
}

// fitting is how many of the first lines are shown.
func fitting(lines [][]byte) int {
	size := 0
	for n, line := range lines {
		if size += len(line); size > mostBytes || n == mostLines {
			return n
		}
	}
	return len(lines)
}
