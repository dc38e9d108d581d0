package tracing

import "testing"

func (q *queue) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open
}

func (q *queue) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reserved == 0
}

// The queue returns spans in order, in batches, and has room again when they are exported.
func TestQueue(t *testing.T) {
	q := newQueue(5, 2)
	if q.reserve() {
		t.Error("there is room before the beginning")
	}
	q.setOpen(true)
	var all []*span
	for range 5 {
		if !q.reserve() {
			t.Fatal("no room")
		}
		all = append(all, &span{})
		q.push(all[len(all)-1])
	}
	if q.reserve() {
		t.Error("there is room for a sixth")
	}
	<-q.full
	var got, batch []*span
	for _, want := range []int{2, 2, 0} {
		if batch = q.take(batch, 2); len(batch) != want {
			t.Errorf("a batch of %d, want %d", len(batch), want)
		}
		got = append(got, batch...)
	}
	got = append(got, q.take(batch, 1)...)
	if len(got) != len(all) {
		t.Fatalf("%d spans, want %d", len(got), len(all))
	}
	for i := range all {
		if got[i] != all[i] {
			t.Errorf("span %d is another", i)
		}
	}
	if q.reserve() {
		t.Error("there is room before the export has ended")
	}
	if q.done(5); !q.reserve() || q.isEmpty() {
		t.Error("no room afterwards")
	}
}
