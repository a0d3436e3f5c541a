package regularfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Read returns a whole file, and takes little more memory than the file's size. It refuses a file that is too
// large.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 511, 512, 513, 1 << 20} {
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, most := range []int64{int64(size), int64(size) + 1, 1 << 30} {
			text, err := Read(path, most)
			if err != nil || !bytes.Equal(text, want) {
				t.Errorf("%d bytes of %d: %v", len(text), size, err)
			}
			if cap(text) > size+4096+size/4 {
				t.Errorf("%d bytes take %d", size, cap(text))
			}
		}
		if text, err := Read(path, int64(size)-1); size > 0 && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes of %d: %v", len(text), size, err)
		}
	}
	if _, err := Read(filepath.Dir(path), 1); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a directory: %v", err)
	}
}
