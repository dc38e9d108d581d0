package kafka

import (
	"testing"
	"testing/synctest"
	"time"
)

// The storage of the cluster is taken back under a relay that lives. Its producer ids may be other
// producers' by now, so it takes new ones before it sends again. That is so also where the control
// connection is silent, and is not known to have ended.
func TestStorageTakenBack(t *testing.T) {
	for name, stop := range map[string]func(m *memory){
		"connections end": func(m *memory) { m.cut() },
		"node restarts":   func(m *memory) { m.turn(1, true, false, time.Hour); synctest.Wait(); m.turn(1, false, false, 0) },
		"control connection is silent": func(m *memory) {
			for _, w := range m.wires[1:] { // the first is the control connection
				w.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, 1, 3, Config{}, func(m *memory, r *running) {
				wantConfirmed(t, r.send(few(20)...))
				synctest.Wait()
				m.change(m.takeBack)
				stop(m)
				synctest.Wait()
				events, before := few(20), len(m.appends)
				wantConfirmed(t, r.send(events...))
				if n := len(m.appends) - before; n != len(events) {
					t.Errorf("%d of %d records are stored", n, len(events))
				}
				for partition, p := range m.topics["events"].partitions {
					for id := range p.producers {
						if m.given[id] != m.life {
							t.Errorf("partition %d was written under producer id %d from before", partition, id)
						}
					}
				}
			})
		})
	}
}

// Connections that end, or were idle for too long, cost no producer ids while the control
// connection, to whichever broker, is up: the storage was not taken back.
func TestReconnectKeepsProducerIDs(t *testing.T) {
	inMemory(t, 2, 8, Config{}, func(m *memory, r *running) {
		wantConfirmed(t, r.send(few(100)...))
		synctest.Wait()
		given := m.producer
		for range 3 {
			for _, w := range m.wires[1:] { // the first is the control connection
				w.Close()
			}
			wantConfirmed(t, r.send(few(100)...))
			goBy(time.Minute)
		}
		if m.producer != given {
			t.Errorf("%d producer ids more", m.producer-given)
		}
	})
}
