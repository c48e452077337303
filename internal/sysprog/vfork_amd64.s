#include "textflag.h"

// func vfork(nr, a0, a1, a2 uintptr) uintptr
//
// The child runs on the same stack while the parent waits, and overwrites what is
// below the caller's frame, this return address included: it is kept in a register,
// of which parent and child have one each.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	a0+8(FP), DI
	MOVQ	a1+16(FP), SI
	MOVQ	a2+24(FP), DX
	XORL	R10, R10
	XORL	R8, R8
	XORL	R9, R9
	MOVQ	nr+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	MOVQ	AX, ret+32(FP)
	RET
