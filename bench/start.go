// The time from the start of the process to its stream.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
)

// starts is the time from the start of the process to its stream.
func (s *stand) starts(ctx context.Context, config string) ([]result, error) {
	var took []float64
	for range s.size.starts {
		began := time.Now()
		var at time.Time
		err := s.withRelay(config, func(relay *runner.Relay) error {
			bounded, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := relay.WaitLog(bounded, `"msg":"streaming"`)
			if err == nil {
				at, err = loggedAt(relay.Log(), `"msg":"streaming"`)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		took = append(took, at.Sub(began).Seconds())
	}
	return []result{{
		name: "start to streaming (slot exists)", ours: spread(took, milliseconds), value: 1e3 * median(took), unit: "ms",
		must: 300, aim: 100, pairs: len(took),
	}}, nil
}

// loggedAt is the time of the first log line with text.
func loggedAt(log, text string) (time.Time, error) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, text) {
			continue
		}
		_, rest, _ := strings.Cut(line, `"time":"`)
		stamp, _, _ := strings.Cut(rest, `"`)
		at, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", stamp)
		if err != nil {
			return at, fmt.Errorf("read time of log line: %w", err)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("no log line with %s", text)
}
