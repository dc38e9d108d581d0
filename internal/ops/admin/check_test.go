package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One check runs at a time, and its findings are shared for ten seconds. One that fails is reported
// and not kept. One that hangs is bounded, and who waits too long for its turn gets an error: both
// bounds together are within that of an answer.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran, fails, hangs := 0, false, false
		a := newAPI(&Server{cfg: Config{API: API{Check: func(ctx context.Context) (any, error) {
			ran++
			switch {
			case hangs:
				<-ctx.Done()
				return nil, ctx.Err()
			case fails:
				return nil, errors.New("no configuration")
			}
			<-time.After(time.Second)
			return []string{"well"}, nil
		}}}})
		get := func(code, checks int) {
			t.Helper()
			w := httptest.NewRecorder()
			a.check(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/check", nil))
			if w.Code != code || ran != checks || code == 200 && !strings.Contains(w.Body.String(), `"findings":["well"]`) {
				t.Errorf("it answers %d %s after %d checks, want %d after %d", w.Code, w.Body, ran, code, checks)
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { get(200, 1) })
		}
		all.Wait()
		<-time.After(checkFresh)
		fails = true
		get(503, 2)
		fails = false
		get(200, 3)
		<-time.After(checkFresh)
		hangs = true
		began := time.Now()
		all.Go(func() { get(503, 4) })
		synctest.Wait()
		get(503, 4)
		if waited := time.Since(began); waited != checkTurn {
			t.Errorf("it waited %s for its turn", waited)
		}
		all.Wait()
		if took := time.Since(began); took != checkBound || checkTurn+checkBound+3*time.Second >= writeBound {
			t.Errorf("it took %s, and an answer may take %s", took, writeBound)
		}
	})
	base := serve(t, func(*Config) {})
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/check", asAnn, nil); code != 503 {
		t.Errorf("without anything to check it answers %d", code)
	}
}
