"""The model's forward pass (src/model.cpp) over the C interface: an engine is the model under one numeric path.

    trainer = Engine(parameters, config, weights="nvfp4")                  the trainer of QUADS: W4A16
    rollout = Engine(parameters, config, weights="nvfp4", activations="residual", drift=True)
"""
import numpy as np

import quads

PROMPT_TOKENS = {c: i for i, c in enumerate("0123456789+-*=")}


def tokens_of(chains):
    """(sequences, n) tokens of chains such as 3+5*2-7=869, all of one length."""
    return np.array([[PROMPT_TOKENS[c] for c in chain] for chain in chains], np.int32)


class Engine:
    def __init__(self, parameters, config, weights="bf16", activations="bf16", outer_scale="row", drift=False):
        self.p, self.config = parameters, config["model"]
        self.weights, self.activations, self.outer_scale, self.drift = weights, activations, outer_scale, drift

    def linear(self, x, name, offsets=None):
        """y = x w^T. Only the experts' matrices, which are stacked, are quantised."""
        w = self.p[name]
        if w.ndim == 2 or self.weights == "bf16":
            return quads.gemm_bf16(x, quads.bf16_round(w), offsets=offsets)
        E, N, K = w.shape
        packed = quads.quantize_nvfp4(w.reshape(E * N, K), "group", np.arange(E + 1) * N)
        if self.activations == "bf16":
            values = quads.dequantize_nvfp4(packed, with_outer=False)
            return quads.gemm_bf16(x, values.reshape(w.shape), packed.outer, offsets)
        main = quads.quantize_nvfp4(x, self.outer_scale, offsets)
        second = quads.quantize_nvfp4_residual(x, main) if self.activations == "residual" else None
        return quads.gemm_w4a4(main, packed, second)

    def add(self, x, y):
        return quads.bf16_round(x + y) if self.drift else x + y

    def attention(self, x, layer, sequences):
        h = quads.rmsnorm(x, self.p[layer + "attention_norm"])
        q, k, v = np.split(quads.bf16_round(self.linear(h, layer + "qkv")), 3, axis=1)
        o = quads.causal_attention(q, k, v, sequences, self.config["heads"])
        return self.linear(o, layer + "attention_out")

    def experts(self, x, layer, trace):
        h = quads.rmsnorm(x, self.p[layer + "expert_norm"])
        logits = self.linear(h, layer + "router")
        probs, experts, gates = quads.router_topk(logits, self.config["active_experts"])
        offsets, source, place = quads.route_rows(experts, self.config["experts"])
        gate_up = self.linear(h[source], layer + "gate_up", offsets)
        out = self.linear(quads.swiglu(gate_up), layer + "down", offsets)
        trace.append({"input": h, "probs": probs, "experts": experts, "gates": gates})
        return quads.combine_rows(out, place, gates)

    def forward(self, tokens):
        """logp (sequences, n, V) of the next token, and what each layer's router saw and chose."""
        sequences, n = tokens.shape
        positions = np.tile(np.arange(n), sequences)
        x = self.add(quads.bf16_round(self.p["token_table"])[tokens.ravel()], self.p["position_table"][positions])
        trace = []
        for l in range(self.config["layers"]):
            layer = f"layers.{l}."
            x = self.add(x, self.attention(x, layer, sequences))
            x = self.add(x, self.experts(x, layer, trace))
        logp, _ = quads.log_softmax(self.linear(quads.rmsnorm(x, self.p["final_norm"]), "head"))
        return logp.reshape(sequences, n, -1), trace

    def response_logp(self, chains):
        """(sequences, responses) log-probabilities of the tokens after '=', each from the row before it."""
        tokens = tokens_of(chains)
        logp, _ = self.forward(tokens[:, :-1])
        taken = np.take_along_axis(logp, tokens[:, 1:, None], 2)[:, :, 0]
        return taken[:, chains[0].index("="):]
