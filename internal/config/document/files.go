// Reading files: bounded, so that a wrong path costs neither the memory nor the start.

package document

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// The most that is read of a file.
const (
	MaxFileBytes   = 256 << 10 // of the configuration
	maxSecretBytes = 64 << 10  // of one that ${file:} names
)

// ReadFile reads the configuration. It may be a pipe, such as the output of a program that decrypts
// it. A file of more than MaxFileBytes is read a little further than that, for Parse to refuse it.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// readSecretFile reads a small regular file. It is read again at every connect, where a FIFO would
// wait for a writer and a device such as /dev/zero never end.
func readSecretFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO does not wait
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err == nil && len(content) > maxSecretBytes {
		err = fmt.Errorf("%s has more than %d KiB, the most a secret may have", path, maxSecretBytes>>10)
	}
	return content, err
}
