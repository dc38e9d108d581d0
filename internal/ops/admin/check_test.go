package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/metrics"
)

// One check runs at a time; callers that waited get its findings.
func TestChecksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, ran atomic.Int32
		answer := make(chan struct{})
		a := newAPI(&Server{cfg: Config{API: API{Check: func(context.Context) ([]ops.Finding, error) {
			ran.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-answer
			return []ops.Finding{{Name: "slot", Level: "ok", Detail: "well"}}, nil
		}}}})
		get := func() {
			w := httptest.NewRecorder()
			a.check(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/check", nil))
			var got ops.Findings
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 ||
				len(got.Findings) != 1 || got.Findings[0].Detail != "well" || got.CheckedAt.IsZero() {
				t.Errorf("one is answered %d %s: %v", w.Code, w.Body, err)
			}
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(get)
		}
		synctest.Wait() // one asks, the others wait for it
		if ran.Load() != 1 || most.Load() != 1 {
			t.Errorf("%d checks run, %d at once", ran.Load(), most.Load())
		}
		close(answer)
		all.Wait()
		get()
		if ran.Load() != 1 {
			t.Errorf("%d checks ran", ran.Load())
		}
	})
}

// An answer is shared for ten seconds. A check that fails is reported to each caller and not kept.
// One that hangs is bounded, and a caller that waits too long for its turn gets an error.
func TestChecksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran, fails := 0, false
		hang := make(chan struct{})
		close(hang)
		a := newAPI(&Server{cfg: Config{API: API{Check: func(ctx context.Context) ([]ops.Finding, error) {
			ran++
			select {
			case <-hang:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if fails {
				return nil, errors.New("no configuration")
			}
			return []ops.Finding{{Name: "slot"}}, nil
		}}}})
		get := func(ctx context.Context, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			a.check(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/check", nil))
			if w.Code != want {
				t.Errorf("it answers %d, want %d: %s", w.Code, want, w.Body)
			}
		}
		get(t.Context(), 200)
		<-time.After(checkFresh - time.Second)
		get(t.Context(), 200)
		if ran != 1 {
			t.Errorf("%d checks in nine seconds", ran)
		}
		<-time.After(2 * time.Second)
		fails = true
		get(t.Context(), 503)
		fails = false
		get(t.Context(), 200)
		if ran != 3 {
			t.Errorf("%d checks, want 3", ran)
		}
		<-time.After(checkFresh)
		hang = make(chan struct{})
		client, hangUp := context.WithCancel(t.Context())
		began := time.Now()
		go get(client, 503) // it has its turn, and is bounded though its client has gone
		synctest.Wait()
		hangUp()
		get(t.Context(), 503) // it waits for its turn
		if waited := time.Since(began); waited != checkTurn {
			t.Errorf("it waited %s", waited)
		}
		<-time.After(checkBound)
		synctest.Wait()
		close(hang)
		get(t.Context(), 200)
	})
}

// A caller that waits for its turn and then for the check still gets an answer within the bound of
// the server.
func TestACheckEndsBeforeItsAnswerIsCut(t *testing.T) {
	const closing = 3 * time.Second // of the stream and the pool that it has opened
	s, err := New(Config{Listen: "127.0.0.1:0", Metrics: metrics.New("", "", ""), Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	if all := checkTurn + checkBound + closing; all >= s.http.WriteTimeout {
		t.Errorf("it may take %s, and its answer is cut after %s", all, s.http.WriteTimeout)
	}
}

func TestNothingToCheck(t *testing.T) {
	base := serve(t, func(*Config) {})
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/check", "", nil); code != 503 {
		t.Errorf("it answers %d", code)
	}
}
