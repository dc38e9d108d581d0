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
// words, and so is their end. A single failure, which a connection that broke leaves behind, is
// not.
func TestLogNamesWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		b := start(t, 1, Config{Log: zap.New(core)})
		b.commitEvents(t, "a", "b")
		for _, c := range []struct{ words, said string }{ // "" for words: all is confirmed
			{words: "EOF"},
			{words: "disk full", said: "publishing fails and is tried again, nothing is dropped: disk full"},
			{words: "disk full"},
			{words: "no space", said: "publishing fails and is tried again, nothing is dropped: no space"},
			{words: "no space"},
			{said: "publishing goes on: "},
			{words: "EOF"},
			{},
		} {
			b.sink.wait(t, 0)
			if c.words == "" {
				b.sink.reply(0, nil, nil)
			} else {
				b.sink.reply(0, errors.New(c.words), map[string]sink.Outcome{"a-0": {}, "b-1": {}})
			}
			synctest.Wait()
			var got, want []string
			for _, line := range logs.TakeAll() {
				words, _ := line.ContextMap()["error"].(string)
				got = append(got, line.Message+": "+words)
			}
			if c.said != "" {
				want = []string{c.said}
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %q: the log says %q, want %q", c.words, got, want)
			}
		}
	})
}
