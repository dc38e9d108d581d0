// The Unix socket of the API. Root and the relay's own user need no token on it, so commands work
// without any setting.

package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// unixSocket is a listening socket with the file that it made.
type unixSocket struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// listenSocket makes the socket at path, which only root and the relay's own user may open. It
// replaces a socket on which nobody listens, which a relay that was killed has left. It leaves
// anything else as it is: another relay on this host may listen there, for example while this one
// is being restarted.
func listenSocket(path string) (*unixSocket, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("admin.socket: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("admin.socket: %s exists and is not a socket: remove it, or set another path", path)
	default:
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return nil, fmt.Errorf("admin.socket: another process listens on %s: if it is another relay that stays, give each its own path", path)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("admin.socket: %w", err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("admin.socket: remove the socket of a relay that has ended: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("admin.socket: the directory of %s does not exist: create it for the relay's user", path)
	}
	if err != nil {
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // at the end the path may belong to another relay
	s := &unixSocket{UnixListener: l, path: path}
	err = os.Chmod(path, 0o600) // a client that connects before this is still asked for its uid
	if err == nil {
		s.made, err = os.Lstat(path)
	}
	if err != nil {
		_ = l.Close() //nolint:errcheck // err already says what is wrong
		return nil, fmt.Errorf("admin.socket: %w", err)
	}
	return s, nil
}

// isThere reports whether the path still is this socket. It is false once the file was removed or
// replaced.
func (s *unixSocket) isThere() bool {
	now, err := os.Lstat(s.path)
	return err == nil && os.SameFile(now, s.made)
}

// Close stops listening, and removes the path if it still is this socket.
func (s *unixSocket) Close() error {
	if s.isThere() {
		_ = os.Remove(s.path) //nolint:errcheck // the next relay replaces a socket that stays
	}
	return s.UnixListener.Close()
}

// socketEvery is how often runSocket tries again to make a socket: the relay that has the path may
// be stopping. It is also how often a socket that is served is looked for, because nobody could
// reach the relay by one whose file was removed.
const socketEvery = 5 * time.Second

// runSocket serves the socket until ctx is done. It logs what is wrong with the path and tries
// again, because delivery does not depend on the socket.
func (s *Server) runSocket(ctx context.Context) {
	for {
		l, err := listenSocket(s.cfg.Socket)
		s.broken.report(s.cfg.Log, "admin.socket", err)
		if err == nil {
			err = s.serveSocket(ctx, l)
			s.broken.report(s.cfg.Log, "admin.socket", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.socketEvery):
		}
	}
}

// serveSocket serves a socket until ctx is done or its path is gone.
func (s *Server) serveSocket(ctx context.Context, l *unixSocket) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		for l.isThere() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(s.socketEvery):
			}
		}
		cancel()
	})
	return s.serve(ctx, s.newHTTP(s.api, withPeer), l)
}

// withPeer puts the user at the other end into the context of a connection's requests, for
// callerOf.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p := peer{uid: -1}
	if unix, ok := conn.(*net.UnixConn); ok {
		if uid, err := peerUID(unix); err == nil {
			p.uid = uid
		}
	}
	return context.WithValue(withConn(ctx, conn), peerKey{}, p)
}
