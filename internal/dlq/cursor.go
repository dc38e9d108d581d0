package dlq

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cursor is a place in a list: behind the row of that number, and of letters, of that time. Rows that come meanwhile do not
// move it.
type cursor struct {
	n      int64 // 0: the beginning
	micros int64 // of died_at, since 1970
}

func cursorAt(r *Row, t *table) string {
	if t == parked {
		return strconv.FormatInt(r.N, 10)
	}
	return fmt.Sprintf("%d-%d", r.DiedAt.UnixMicro(), r.N)
}

// parseCursor reads what cursorAt wrote.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{}, nil
	}
	micros, n, both := strings.Cut(s, "-")
	if !both {
		micros, n = "0", s
	}
	if c.micros, err = strconv.ParseInt(micros, 10, 64); err == nil {
		c.n, err = strconv.ParseInt(n, 10, 64)
	}
	if err != nil || c.n <= 0 {
		return cursor{}, &BadInput{"cursor", fmt.Sprintf("is %q, and no list gave that", s)}
	}
	return c, nil
}

// after adds the condition for what comes behind the cursor.
func (c cursor) after(w *where, t *table) {
	switch {
	case c.n == 0:
	case t == parked:
		w.and("t.n < ?", c.n)
	default:
		w.and("(t.died_at, t.n) < (?, ?)", time.UnixMicro(c.micros), c.n)
	}
}
