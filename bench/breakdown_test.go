package main

import (
	"math"
	"strings"
	"testing"
)

// What pprof prints, with an allocation's label and the profile's own stack.
const tracesText = `File: cdc-relay
Type: cpu
-----------+-------------------------------------------------------
  2000000us   internal/runtime/syscall/linux.Syscall6
             syscall.write
             net.(*conn).Write
             github.com/cdc-relay/cdc-relay/internal/sink/kafka.(*gather).Write
             github.com/cdc-relay/cdc-relay/internal/relay.(*lane).call
-----------+-------------------------------------------------------
     bytes:  16B
   500000us   runtime.memmove
             github.com/cdc-relay/cdc-relay/internal/sink/kafka.(*batch).add
-----------+-------------------------------------------------------
   250000us   runtime.futex
             runtime.schedule
             runtime.mcall
-----------+-------------------------------------------------------
   250000us   runtime.scanobject
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
   900000us   runtime/pprof.profileWriter
-----------+-------------------------------------------------------
`

func TestTraces(t *testing.T) {
	all, err := readTraces(tracesText, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[part]float64{
		{"internal/sink/kafka", systemCalls}: 2,
		{"internal/sink/kafka", ourCode}:     0.5,
		{"scheduler", ""}:                    0.25,
		{"garbage collection", ""}:           0.25,
	} {
		if s := all[p]; s == nil || math.Abs(s.value-want) > 1e-9 {
			t.Errorf("%v: %v, want %v", p, s, want)
		}
	}
	if got := all.total(); math.Abs(got-3) > 1e-9 {
		t.Errorf("all parts are %v, want 3: the profile's own work is none of the relay's", got)
	}
	for _, line := range []string{
		"| internal/sink/kafka: system calls | 2.000 | 67 % | `(*gather).Write` 100 % |", "| scheduler | 0.250 | 8 % | `runtime.futex` 100 % |",
	} {
		if table := all.table("µs"); !strings.Contains(table, line) {
			t.Errorf("no %q in\n%s", line, table)
		}
	}
	if _, err := readTraces("File: cdc-relay\n", 1); err == nil {
		t.Error("an empty profile is no error")
	}
}

func TestLoadInWords(t *testing.T) {
	for want, l := range map[string]runSpec{
		"single-row transactions, 200 B, 12 partitions":    {rowsPerTx: 1, payload: 200, partitions: 12},
		"10,000-row transactions, 2 KiB, 1 partition":      {rowsPerTx: 10_000, payload: 2048, partitions: 1},
		"1,000,000-row transactions, 512 B, 12 partitions": {rowsPerTx: 1_000_000, partitions: 12},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
