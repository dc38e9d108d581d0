// Package sentinel has the texts that tests put into data and look for where it goes: one stands
// for personal data, the other attacks the terminal.
package sentinel

import (
	"fmt"
	"strings"
)

// Sentinel stands for personal data: tests put it into payloads, keys and headers, and it must be
// nowhere but there. Each place has a text of its own, so that a leak says where it comes from.
// Keys and payloads have a quote before it: what is shown up to a quote, or left out up to one, is
// not all.
const (
	Sentinel        = "s3ntinel"
	SentinelKey     = `"` + Sentinel + ".key"
	SentinelPayload = `"` + Sentinel + ".payload"
	SentinelHeader  = Sentinel + ".header"
)

// Leak is an error that shows the first line of a text that has the sentinel; nil when none has.
func Leak(where, text string) error {
	if !strings.Contains(text, Sentinel) {
		return nil
	}
	for line := range strings.Lines(text) {
		if at := strings.Index(line, Sentinel); at >= 0 {
			return fmt.Errorf("personal data in %s: %s", where, strings.TrimSpace(line[max(at-500, 0):min(at+500, len(line))]))
		}
	}
	return nil
}
