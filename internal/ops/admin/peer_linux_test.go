package admin

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// askAs asks at the socket as another user, with a thread that ends with it; -1 stays who it is.
func askAs(uid int, path string) (int, error) {
	type answered struct {
		code int
		err  error
	}
	done := make(chan answered, 1)
	go func() {
		if uid >= 0 {
			runtime.LockOSThread()
			if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); failed != 0 {
				done <- answered{0, failed}
				return
			}
		}
		code, err := askOnce(path)
		done <- answered{code, err}
	}()
	got := <-done
	return got.code, got.err
}

// askOnce asks by this goroutine alone.
func askOnce(path string) (int, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /api/v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

// The kernel says who asks. Another user has no right, should the file's mode let it in.
func TestPeerOfTheKernel(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // that of t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	serve(t, func(c *Config) { c.Socket, c.Tokens = path, nil })
	untilServed(t, path)
	for path, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	wants := map[int]int{-1: 200}
	if os.Geteuid() == 0 { // only root can become somebody else
		wants[65534] = 403
	}
	for uid, want := range wants {
		if code, err := askAs(uid, path); code != want || err != nil {
			t.Errorf("uid %s is answered %d, %v, want %d", strconv.Itoa(uid), code, err, want)
		}
	}
}
