package relay

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// TestLogNamesWhatFails: calls that fail one after the other are in the log, once for the same
// text, and so is their end. A single failure, which a connection that broke leaves behind, is not.
func TestLogNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		b := start(t, 1, Config{Log: zap.New(core)})
		b.commitEvents(t, "a", "b")
		for _, c := range []struct{ text, logged string }{ // "" for text: all is confirmed
			{text: "EOF"},
			{text: "disk full", logged: "publishing failed: it is tried again, nothing is dropped: disk full"},
			{text: "disk full"},
			{text: "no space", logged: "publishing failed: it is tried again, nothing is dropped: no space"},
			{text: "no space"},
			{logged: "publishing works again: "},
			{text: "EOF"},
			{},
		} {
			b.sink.wait(t, 0)
			if c.text == "" {
				b.sink.reply(0, nil, nil)
			} else {
				b.sink.reply(0, errors.New(c.text), map[string]sink.Outcome{"a-0": {}, "b-1": {}})
			}
			synctest.Wait()
			var got, want []string
			for _, line := range logs.TakeAll() {
				text, _ := line.ContextMap()["error"].(string)
				got = append(got, line.Message+": "+text)
			}
			if c.logged != "" {
				want = []string{c.logged}
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %q: the log says %q, want %q", c.text, got, want)
			}
		}
	})
}
