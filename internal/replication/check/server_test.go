package check

import "testing"

// A proxy that hands everything on but the backend's number may be harmless.
func TestWhatIsInBetween(t *testing.T) {
	for _, c := range []struct {
		samePID bool
		lost    []string
		level   string
	}{
		{true, nil, LevelOK},
		{false, nil, LevelWarn},
		{true, []string{`bytea_output is "escape"`}, LevelFail},
		{false, []string{`bytea_output is "escape"`}, LevelFail},
	} {
		var k checker
		if k.reportPooler(c.samePID, c.lost); len(k.list) != 1 || k.list[0].Level != c.level || (c.level == LevelOK) != (k.list[0].Fix == "") {
			t.Errorf("%+v: %+v", c, k.list)
		}
	}
}
