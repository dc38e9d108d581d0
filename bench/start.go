// The time from the start of the process to its stream.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// starts is the time from the start of the process to its stream.
func (s *stand) starts(ctx context.Context, config string) ([]result, error) {
	var took []float64
	for range s.size.starts {
		began := time.Now()
		relay, err := s.startRelay(config)
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		err = relay.WaitLog(bounded, `"msg":"streaming"`)
		cancel()
		if err != nil {
			return nil, errors.Join(err, relay.Kill())
		}
		at, err := loggedAt(relay.Log(), `"msg":"streaming"`)
		if err != nil {
			return nil, errors.Join(err, relay.Kill())
		}
		took = append(took, at.Sub(began).Seconds())
		if err := s.stopRelay(relay); err != nil {
			return nil, err
		}
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
