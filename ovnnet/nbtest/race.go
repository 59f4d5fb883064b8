package nbtest

import (
	"fmt"
)

func Sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }
