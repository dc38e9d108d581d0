// Processor time of the parts of a run. It says why a rate is what it is where everything shares
// two cores.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"
)

// cost is processor time, user and system, of everything that a run keeps busy.
type cost struct {
	publisher time.Duration // the relay; in a bare run, of a publisher or a reader, this process
	walsender time.Duration
	broker    time.Duration
}

func (c cost) minus(d cost) cost {
	return cost{c.publisher - d.publisher, c.walsender - d.walsender, c.broker - d.broker}
}

func (c cost) plus(d cost) cost {
	return cost{c.publisher + d.publisher, c.walsender + d.walsender, c.broker + d.broker}
}

func (c cost) per(n int) cost {
	return cost{c.publisher / time.Duration(n), c.walsender / time.Duration(n), c.broker / time.Duration(n)}
}

func (c cost) relay() string {
	return fmt.Sprintf("relay %s, walsender %s, broker %s µs CPU per event", micros(c.publisher), micros(c.walsender), micros(c.broker))
}

func (c cost) bare() string {
	return fmt.Sprintf("bare publisher %s, broker %s", micros(c.publisher), micros(c.broker))
}

func (c cost) read() string {
	return fmt.Sprintf("bare read %s, walsender %s", micros(c.publisher), micros(c.walsender))
}

// cost reads the clocks of the broker and of the publisher with this pid.
func (s *stand) cost(publisher int) (c cost, err error) {
	if c.broker, err = cpuTime(s.brokerPid); err != nil {
		return c, err
	}
	c.publisher, err = cpuTime(publisher)
	return c, err
}

// walsenderTime reads the clock of the process that sends the slot "bench".
func (s *stand) walsenderTime(ctx context.Context) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, s.db)
	if err != nil {
		return 0, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid int
	if err := conn.QueryRow(ctx, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'bench'").Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask for walsender: %w", err)
	}
	return cpuTime(pid)
}

// cpuTime is the time that a process has spent on a processor, user and system, all threads, also
// those that have ended.
func cpuTime(pid int) (time.Duration, error) {
	var spent unix.Timespec
	// of the process, as clock_getcpuclockid(3) numbers it: exact, where /proc has hundredths of a
	// second
	clock := int32(^pid<<3 | 2)
	if err := unix.ClockGettime(clock, &spent); err != nil {
		return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
	}
	return time.Duration(spent.Nano()), nil
}
