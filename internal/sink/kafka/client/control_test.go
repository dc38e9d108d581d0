package client

import (
	"testing"
	"time"
)

// Where metadata takes longer than the pause between its questions, it does not starve the ids
// either.
func TestMetadataDoesNotStarveIds(t *testing.T) {
	c, now := NewClient(Options{Brokers: []string{"1:9092"}}).Control, time.Now()
	for range 3 {
		c.Identify(&ProducerBatch{})
	}
	var ids, metadata int
	for range 6 {
		c.RequestMetadata("events")
		s, topics, _ := c.next(now)
		if s != nil {
			ids++
		}
		if topics != nil {
			metadata++
		}
		now = now.Add(2 * AskEvery)
	}
	if ids != 3 || metadata != 3 {
		t.Errorf("%d ids, %d times metadata", ids, metadata)
	}
}
