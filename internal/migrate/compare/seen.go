// The ids that were paired last.

package compare

import "hash/maphash"

// seen remembers digests of the ids that were paired last, so that a repetition is known as one: at
// least most of them, at most twice as many.
type seen struct {
	seed          maphash.Seed
	newest, older map[uint64]struct{}
	most          int
}

func newSeen(most int) *seen {
	return &seen{seed: maphash.MakeSeed(), newest: map[uint64]struct{}{}, most: most}
}

func (s *seen) has(id string) bool {
	digest := maphash.String(s.seed, id)
	_, newest := s.newest[digest]
	_, older := s.older[digest]
	return newest || older
}

func (s *seen) add(id string) {
	if len(s.newest) >= s.most {
		s.newest, s.older = map[uint64]struct{}{}, s.newest
	}
	s.newest[maphash.String(s.seed, id)] = struct{}{}
}
