package event

import (
	"errors"
	"math"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

func TestPositionText(t *testing.T) {
	for want, p := range map[string]Position{
		"0000000000000000-00000000":   {},
		"00000000016b3748-00000001":   {Commit: 0x16B3748, Index: 1},
		"ffffffffffffffff-99999999":   {Commit: math.MaxUint64, Index: 99_999_999},
		"0000000100000000-100000000":  {Commit: 1 << 32, Index: 100_000_000},
		"0000000000000001-4294967295": {Commit: 1, Index: math.MaxUint32},
	} {
		if got := p.String(); got != want {
			t.Errorf("%#v is %s, want %s", p, got, want)
		}
	}
}

// The header is what consumers compare and what the sink reads back from a returned message.
func TestPositionSurvivesItsText(t *testing.T) {
	position := rapid.Custom(func(t *rapid.T) Position {
		return Position{Commit: pglogrepl.LSN(rapid.Uint64().Draw(t, "commit")), Index: rapid.Uint32().Draw(t, "index")}
	})
	rapid.Check(t, func(t *rapid.T) {
		p, q := position.Draw(t, "p"), position.Draw(t, "q")
		back, err := ParsePosition(p.String())
		if err != nil || back != p {
			t.Fatalf("%v came back as %v, %v", p, back, err)
		}
		if p.Index < 100_000_000 && q.Index < 100_000_000 && p.Less(q) != (p.String() < q.String()) {
			t.Fatalf("%s and %s compare otherwise than their texts", p, q)
		}
	})
}

func TestParsePositionRefuses(t *testing.T) {
	for _, text := range []string{
		"", "-", "0/16B3748", "00000000016b3748", "00000000016b3748-0000001", "00000000016b3748_00000001",
		"g0000000016b3748-00000001", "00000000016b3748-0000000x", "00000000016b3748-4294967296", "00000000016b3748--0000001",
	} {
		if p, err := ParsePosition(text); err == nil {
			t.Errorf("%q was read as %v", text, p)
		}
	}
}

func TestStopIsOneLine(t *testing.T) {
	cause := errors.New("no route to host")
	stop := &Stop{Code: ExitFailure, What: "the thing", Err: cause, Fix: "fix it"}
	if got, want := stop.Error(), "the thing: no route to host; fix it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(stop, cause) {
		t.Error("the cause is not found")
	}
	if got := (&Stop{What: "the thing"}).Error(); got != "the thing" {
		t.Errorf("got %q", got)
	}
}
