// The ids that were paired last.

package compare

import "hash/maphash"

// seen remembers the last ids that were paired, by digests of 128 bits, so that a repetition is
// known as one.
type seen struct {
	seeds [2]maphash.Seed
	known map[[2]uint64]struct{}
	ring  [][2]uint64
	at    int
	most  int
}

func newSeen(most int) *seen {
	return &seen{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, known: map[[2]uint64]struct{}{}, most: most}
}

func (s *seen) digest(id string) [2]uint64 {
	return [2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}
}

func (s *seen) has(id string) bool {
	_, ok := s.known[s.digest(id)]
	return ok
}

func (s *seen) add(id string) {
	d := s.digest(id)
	s.known[d] = struct{}{}
	if len(s.ring) < s.most {
		s.ring = append(s.ring, d)
		return
	}
	delete(s.known, s.ring[s.at])
	s.ring[s.at] = d
	s.at = (s.at + 1) % s.most
}
