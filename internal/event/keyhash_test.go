package event

import (
	"fmt"
	"testing"
)

// The first vectors of SipHash's authors (key 00 01 ... 0f, message of nothing, and of 00 ... 0e).
// Digests are stored, so a change of these numbers is a change of format.
func TestSipHash(t *testing.T) {
	var secret [16]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	h := NewKeyHash(secret)
	if got, want := h.newSip().sum(0), uint64(0x726fdb47dd0e0e31); got != want {
		t.Errorf("of nothing it is %#x, want %#x", got, want)
	}
	if got, want := h.newSip().bytes([]byte{0, 1, 2, 3, 4, 5, 6, 7}).sum(15<<56|0x0e0d0c0b0a0908), uint64(0xa129ca6149be45e5); got != want {
		t.Errorf("of 15 bytes it is %#x, want %#x", got, want)
	}
	if got, want := h.Of([]byte("order"), []byte("42")), uint64(0xedf7a7526d729865); got != want {
		t.Errorf("of a key it is %#x, was %#x", got, want)
	}
}

// Keys that were made to have one HashKey have digests of their own, and so do those that differ
// in what belongs to the aggregate, in zeros and in length.
func TestKeyHashTellsKeysApart(t *testing.T) {
	keys := [][2]string{
		{"ads", "AVP_vyf6ZAD46voja//0!j_"},
		{"bank", "acct-000000000000000001"},
		{"ab", "c"},
		{"a", "bc"},
		{"", "abc"},
		{"abc", ""},
		{"a", "b\x00"},
		{"a", "b"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"12345678", "x"},
		{"1234567", "8x"},
		{"", "12345678x"},
		{"", "12345678x\x00"},
	}
	if HashKey([]byte(keys[0][0]), []byte(keys[0][1])) != HashKey([]byte(keys[1][0]), []byte(keys[1][1])) {
		t.Error("the first two were to have the same digest without a secret")
	}
	seen := map[uint64]string{}
	for _, secret := range [][16]byte{{}, {1}, {15: 1}} {
		for _, k := range keys {
			digest := NewKeyHash(secret).Of([]byte(k[0]), []byte(k[1]))
			if other, ok := seen[digest]; ok {
				t.Errorf("%q and %s have one digest", k, other)
			}
			seen[digest] = fmt.Sprintf("%q under %v", k, secret)
		}
	}
}

func TestKeyHashAllocatesNothing(t *testing.T) {
	h, aggregate, key := NewKeyHash([16]byte{1}), []byte("order"), []byte("2f1b4f0e-8a53-4b52-9b1f-0c6a1d1f7a11")
	if n := testing.AllocsPerRun(100, func() { h.Of(aggregate, key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkKeyHash(b *testing.B) {
	h, aggregate, key := NewKeyHash([16]byte{1}), []byte("order"), []byte("2f1b4f0e-8a53-4b52-9b1f-0c6a1d1f7a11")
	for b.Loop() {
		h.Of(aggregate, key)
	}
}
