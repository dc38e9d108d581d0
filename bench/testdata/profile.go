// This file is not part of the relay: `go run ./bench -profile` puts it next to the relay's own
// main in a build for itself.

package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
)

// The profile of the processor begins with the process, that of the allocations has each of them
// when BENCH_ALLOCATIONS is set. SIGUSR1 ends both; they are written to the directory
// BENCH_PROFILE, and the file "done" last.
func init() {
	dir := os.Getenv("BENCH_PROFILE")
	if dir == "" {
		return
	}
	if os.Getenv("BENCH_ALLOCATIONS") != "" {
		runtime.MemProfileRate = 1
	}
	cpu := create(dir, "cpu")
	must(pprof.StartCPUProfile(cpu))
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGUSR1)
	go func() {
		<-end
		pprof.StopCPUProfile()
		must(cpu.Close())
		runtime.GC() // the profile of allocations is as of the last one
		allocs := create(dir, "allocs")
		must(pprof.Lookup("allocs").WriteTo(allocs, 0))
		must(allocs.Close())
		must(create(dir, "done").Close())
	}()
}

func create(dir, name string) *os.File {
	f, err := os.Create(filepath.Join(dir, name))
	must(err)
	return f
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
