// What a failed test has said itself, found among all that was printed: the logs of the servers
// that it shows at its end are longer than the reason why it does, and a log of CI may be cut off.

package main

import (
	"bytes"
	"fmt"
	"regexp"
)

// What is shown of it.
const (
	mostParts = 30       // of a test: half of them the first, half the last
	mostLines = 5        // of a part
	mostBytes = 500      // of a part
	mostSaid  = 32 << 10 // bytes of all tests together
)

var (
	// partBegins is where t.Log, t.Error or t.Fatal begins, which go test -json does not tell
	// apart, or a process says why it ends.
	partBegins = regexp.MustCompile(`^(    \S+\.go:\d+: |panic: |fatal error: )`)
	partGoesOn = []byte("        ")
)

// said is the beginnings of what a test has said, in the order in which it did.
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
			out = append(out, beginning(part)...)
		case i == mostParts/2:
			out = fmt.Appendf(out, "    … %d more …\n", left)
		}
	}
	return out
}

// beginning is as much of a part as is shown.
func beginning(part []byte) []byte {
	end, lines := 0, 0
	for line := range bytes.Lines(part) {
		if lines++; lines > mostLines || end+len(line) > mostBytes {
			if lines == 1 {
				end = mostBytes
			}
			return fmt.Appendf(nil, "%s …\n", bytes.ToValidUTF8(bytes.TrimSuffix(part[:end], []byte("\n")), nil))
		}
		end += len(line)
	}
	return part
}
