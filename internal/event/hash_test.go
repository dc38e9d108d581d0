package event

import (
	"fmt"
	"testing"
)

// TestHashIsTheSameForEver: digests may be stored, so a change of these numbers is a change of
// format.
func TestHashIsTheSameForEver(t *testing.T) {
	for _, c := range []struct {
		aggregate, key string
		want           uint64
	}{
		{"order", "42", 0xd31b698efa23d0d4},
		{"", "42", 0x19a994282525c270},
		{"order", "2f1b4f0e-8a53-4b52-9b1f-0c6a1d1f7a11", 0x55b35eee5e100bb4},
	} {
		if got := HashKey([]byte(c.aggregate), []byte(c.key)); got != c.want {
			t.Errorf("hash of (%q, %q) is %#x, was %#x", c.aggregate, c.key, got, c.want)
		}
	}
	if got, want := HashPosition(Position{Commit: 0x16B3748, Index: 3}), uint64(0x6e78d62338c7dd2f); got != want {
		t.Errorf("hash of a position is %#x, was %#x", got, want)
	}
}

// Names of destinations, and what is below them.
func TestNameHashIsTheSameForEver(t *testing.T) {
	const exchangeOrTopic = 0x2890bc3e03cf94fe
	for _, c := range []struct {
		within uint64
		name   string
		want   uint64
	}{
		{0, "outbox.events", exchangeOrTopic},
		{exchangeOrTopic, "order.created", 0xc7963187954fc001},
		{0, "", 0x57fe6387ad62086d},
	} {
		if got := HashName(c.within, []byte(c.name)); got != c.want {
			t.Errorf("hash of %q within %#x is %#x, was %#x", c.name, c.within, got, c.want)
		}
	}
}

// TestHashTellsKeysApart: aggregate and key are two fields, not one text; zero bytes and lengths
// count.
func TestHashTellsKeysApart(t *testing.T) {
	seen := map[uint64]string{}
	for _, k := range [][2]string{
		{"ab", "c"},
		{"a", "bc"},
		{"", "abc"},
		{"abc", ""},
		{"a", "b\x00"},
		{"a", "b"},
		{"a", "b\x00\x00"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"12345678", "x"},
		{"1234567", "8x"},
		{"", "12345678x"},
		{"", "12345678x\x00"},
	} {
		h := HashKey([]byte(k[0]), []byte(k[1]))
		if other, ok := seen[h]; ok {
			t.Errorf("%q and %s share a hash", k, other)
		}
		seen[h] = fmt.Sprintf("%q", k)
	}
	if HashKey(nil, []byte("k")) != HashKey([]byte{}, []byte("k")) {
		t.Error("a NULL and an empty aggregate have two hashes")
	}
}

// TestHashSpreads: counted keys, UUID-like keys and positions fill 32 lanes evenly, and no two
// digests are equal.
func TestHashSpreads(t *testing.T) {
	const n, lanes = 100_000, 32
	for name, digest := range map[string]func(i int) uint64{
		"counted":   func(i int) uint64 { return HashKey([]byte("order"), fmt.Append(nil, i)) },
		"uuid":      func(i int) uint64 { return HashKey(nil, fmt.Appendf(nil, "%08x-8a53-4b52-9b1f-0c6a1d1f7a11", i)) },
		"aggregate": func(i int) uint64 { return HashKey(fmt.Append(nil, "a", i), []byte("1")) },
		"name":      func(i int) uint64 { return HashName(0, fmt.Append(nil, "topic-", i)) },
		"below":     func(i int) uint64 { return HashName(HashName(0, []byte("topic")), fmt.Append(nil, i)) },
		"index":     func(i int) uint64 { return HashPosition(Position{Commit: 0x16B3748, Index: uint32(i)}) },
	} {
		t.Run(name, func(t *testing.T) {
			var count [lanes]int
			seen := make(map[uint64]bool, n)
			for i := range n {
				h := digest(i)
				count[h%lanes]++
				seen[h] = true
			}
			if len(seen) != n {
				t.Errorf("%d digests for %d keys", len(seen), n)
			}
			for lane, got := range count {
				if got < n/lanes*9/10 || got > n/lanes*11/10 {
					t.Errorf("lane %d has %d of %d keys", lane, got, n)
				}
			}
		})
	}
}

func BenchmarkHashKey(b *testing.B) {
	aggregate, key := []byte("order"), []byte("2f1b4f0e-8a53-4b52-9b1f-0c6a1d1f7a11")
	for b.Loop() {
		HashKey(aggregate, key)
	}
}
