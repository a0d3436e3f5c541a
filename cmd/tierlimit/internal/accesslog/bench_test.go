package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
)

func BenchmarkReader(b *testing.B) {
	zipped, err := io.ReadAll(nasa.Open())
	if err != nil {
		b.Fatal(err)
	}
	unzipper, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		b.Fatal(err)
	}
	plain, err := io.ReadAll(unzipper)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plain", func(b *testing.B) { read(b, plain, len(plain)) })
	b.Run("gzip", func(b *testing.B) { read(b, zipped, len(plain)) })
}

func read(b *testing.B, data []byte, unzipped int) {
	b.SetBytes(int64(unzipped))
	b.ReportAllocs()
	lines := 0
	for b.Loop() {
		log, err := accesslog.NewReader(bytes.NewReader(data))
		for err == nil {
			_, err = log.Read()
		}
		if !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		lines += log.Lines()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(lines), "ns/line")
}
