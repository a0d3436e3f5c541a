package promlimit_test

import (
	"testing"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
